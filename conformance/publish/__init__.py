"""The contract of publication: one verified round becomes part of a request, whole or not at all."""
