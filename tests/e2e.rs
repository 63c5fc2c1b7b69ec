//! End to end: the real binary on a free port, real clients, one test binary.

mod e2e {
    mod bad_input;
    mod docs;
    mod harness;
    mod patience;
    mod real_site;
    mod smoke;
    mod tool;
    mod versions;
}
