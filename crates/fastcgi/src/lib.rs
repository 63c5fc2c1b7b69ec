//! FastCGI 1.0 as a client: records and variables as values, and the handler in front of PHP-FPM.
