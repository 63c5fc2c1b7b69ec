//! What active pages keep: a SQLite database with one writer and many readers off the event loop, and values shared among workers.
