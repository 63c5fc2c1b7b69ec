//! Runs the fuzzer that the variable FUZZER names, coverage-guided: `make fuzz FUZZER=chunked`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let name = std::env::var("FUZZER").unwrap_or_else(|_| "request_head".to_owned());
    flatout_fuzz::run(&name, bytes);
});
