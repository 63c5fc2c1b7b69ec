//! How old an answer is (RFC 9111 §4.2.3).
