// e2e
