"""One module an implementation, each behind the same interface (`adapters.interface`)."""
