//! The cost of a run: `cargo run --release -p flatout-pages --example cost`, with the machine otherwise quiet.

use flatout_pages::exchange::Exchange;
use flatout_pages::sandbox::{Limits, ResumeResult, Sandbox};
use std::time::Instant;

const RUNS: u32 = 200_000;
const ROUNDS: usize = 7;

const CHUNKS: &[(&str, &str)] = &[
    ("nothing", ""),
    ("one segment", "__s(0)"),
    ("one insertion", "__s(0) __w(TIMEDATE()) __s(1)"),
    ("ten insertions", "for i = 1, 10 do __s(i) __w(i) end"),
    ("globals", "title = 'x' function row(i) __w(i) end row(1)"),
    ("a pattern", "__w((string.match('key=value', '(%w+)=')))"),
    ("a substitution", "__w((string.gsub('a b c', '%w', '<%0>')))"),
    ("pcall", "pcall(TIMEDATE)"),
    ("a coroutine", "for i in coroutine.wrap(function() coroutine.yield(1) end) do end"),
    ("a loop of 1,000", "local n = 0 for i = 1, 1000 do n += i end __w(n)"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sandbox = Sandbox::new()?;
    let text = sandbox.lua().create_string("Sat, 21 Nov 2026 10:00:00 GMT")?;
    let native = sandbox.function(move |_, _, ()| Ok(text.clone()))?;
    sandbox.global("TIMEDATE", native)?;
    sandbox.seal()?;
    let mut exchange = Some(Box::<Exchange>::default());
    for (name, source) in CHUNKS {
        let code = sandbox.load(name, source).map_err(|failure| failure.message)?;
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..RUNS {
                let mut run = sandbox.start(&code, exchange.take().unwrap_or_default(), Limits::default());
                match run.resume() {
                    ResumeResult::Done => {}
                    other => return Err(format!("{name}: {other:?}").into()),
                }
                let mut back = run.finish();
                back.clear();
                exchange = Some(back);
            }
            best = best.min(began.elapsed().as_nanos() as f64 / f64::from(RUNS));
        }
        println!("{name:20} {best:8.0} ns");
    }
    Ok(())
}
