"""The values that cross the interface: frozen dataclasses of NumPy arrays, one module a family of contracts.

They hold, they do not judge: an operation validates what it reads (`oracle.errors.BadInput`), so a
case can also carry poison where nothing may look.
"""

from oracle.types.acceptance import PROPOSALS as PROPOSALS
from oracle.types.acceptance import Coins as Coins
from oracle.types.acceptance import Decision as Decision
from oracle.types.acceptance import DraftTable as DraftTable
from oracle.types.acceptance import ProposalCase as ProposalCase
from oracle.types.acceptance import Proposals as Proposals
from oracle.types.acceptance import VerifyCase as VerifyCase
from oracle.types.acceptance import WarpCase as WarpCase
from oracle.types.arrays import Flags as Flags
from oracle.types.arrays import Ids as Ids
from oracle.types.arrays import Rows as Rows
from oracle.types.losses import DENOMINATORS as DENOMINATORS
from oracle.types.losses import DIVERGENCES as DIVERGENCES
from oracle.types.losses import GATES as GATES
from oracle.types.losses import MAP_CONVENTIONS as MAP_CONVENTIONS
from oracle.types.losses import REDUCTIONS as REDUCTIONS
from oracle.types.losses import RESTRICTED_TARGETS as RESTRICTED_TARGETS
from oracle.types.losses import DistillCase as DistillCase
from oracle.types.losses import DraftMapCase as DraftMapCase
from oracle.types.losses import Eagle1Case as Eagle1Case
from oracle.types.losses import HassLossCase as HassLossCase
from oracle.types.losses import LossResult as LossResult
from oracle.types.losses import RegressionCase as RegressionCase
from oracle.types.losses import RolloutLossCase as RolloutLossCase
from oracle.types.losses import TopKCase as TopKCase
from oracle.types.noise import LAWS as LAWS
from oracle.types.noise import NoiseCase as NoiseCase
from oracle.types.noise import NoisySample as NoisySample
from oracle.types.noise import SampleCase as SampleCase
from oracle.types.rows import OWNERS as OWNERS
from oracle.types.rows import GatherCase as GatherCase
from oracle.types.rows import GatheredRows as GatheredRows
from oracle.types.rows import RolloutRows as RolloutRows
from oracle.types.rows import RolloutRowsCase as RolloutRowsCase
from oracle.types.rows import RowPlan as RowPlan
from oracle.types.rows import SupervisionCase as SupervisionCase
from oracle.types.rows import TokenBatch as TokenBatch
from oracle.types.training import GRADIENTS as GRADIENTS
from oracle.types.training import Provenance as Provenance
from oracle.types.training import StateGradientCase as StateGradientCase
from oracle.types.training import TrainingCase as TrainingCase
from oracle.types.training import TrainingResult as TrainingResult
from oracle.types.tree import MASK_FORMS as MASK_FORMS
from oracle.types.tree import CandidateTree as CandidateTree
from oracle.types.tree import DraftTreeCase as DraftTreeCase
from oracle.types.tree import FlattenCase as FlattenCase
from oracle.types.tree import FlatTree as FlatTree
from oracle.types.tree import GrowthCase as GrowthCase
from oracle.types.tree import MaskCase as MaskCase
from oracle.types.tree import SelectionCase as SelectionCase
from oracle.types.visibility import ROW_ANCHORS as ROW_ANCHORS
from oracle.types.visibility import Attended as Attended
from oracle.types.visibility import AttentionCase as AttentionCase
from oracle.types.visibility import RolloutCase as RolloutCase
from oracle.types.visibility import RolloutMaskCase as RolloutMaskCase
from oracle.types.visibility import VisibilityGraph as VisibilityGraph
