"""Single changes to the code that decides order and leases. Each must make a test of `make test` fail."""
