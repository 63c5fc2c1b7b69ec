//! Workload similar to the static part of SPECweb99: directories and files of unequal popularity, and sessions.
//!
//! Directories have the same files as those of [`super::web96`]. There are 25 + (400,000/122,000)·connections/5 of
//! them, chosen by Zipf's law with exponent 1. Within a class, the files have Zipf probabilities in the order 4, 3, 5,
//! 2, 6, 1, 7, 8, 0. A connection has one request in 30 % of cases, otherwise 5 to 15. Other parts of SPECweb99
//! (dynamic responses, POST, cookies, limited line speeds) are missing, so results are not comparable with those of
//! SPECweb99.

use super::Workload;
use super::web96::{DIRECTORY_BYTES, FILES, ShapeError, build, check_directories};

/// Files of a class, most popular first.
const FAME: [usize; FILES] = [4, 3, 5, 2, 6, 1, 7, 8, 0];

/// Number of requests per session: one in 30 % of cases, else 5 to 15 with equal probability. The ends 4.5 and 15.5
/// take rounding to integers into account.
pub const SESSION_LENGTH: &str = "30%:1,70%:uniform:4.5..15.5";

/// Returns the probabilities of files 0 to 8 within a class.
pub fn file_chances() -> [f64; FILES] {
    let total: f64 = (1..=FILES).map(|rank| 1.0 / rank as f64).sum();
    let mut chances = [0.0; FILES];
    for (rank, file) in FAME.into_iter().enumerate() {
        chances[file] = 1.0 / (rank as f64 + 1.0) / total;
    }
    chances
}

/// Returns the number of directories for this many connections, rounded.
pub fn directories(connections: f64) -> Result<u64, ShapeError> {
    check_directories(25.0 + 400_000.0 / 122_000.0 * connections / 5.0, connections)
}

/// Returns the workload for a server intended for this many concurrent connections.
///
/// # Errors
/// Fails if the number of connections is invalid.
pub fn workload(connections: f64) -> Result<Workload, ShapeError> {
    let directories = directories(connections)?;
    let zipf = |directory: u64| 1.0 / (directory as f64 + 1.0);
    let mut workload = build("web99-like", directories, zipf, &file_chances()).ok_or(ShapeError::Load(connections))?;
    workload.session_length = Some(SESSION_LENGTH);
    workload.parameters = vec![
        ("connections", connections.to_string()),
        ("directories", directories.to_string()),
        ("set", format!("{} B", directories * DIRECTORY_BYTES)),
        ("classes", "35/50/14/1 %".to_owned()),
        ("in a class", "Zipf 1 in the order 4, 3, 5, 2, 6, 1, 7, 8, 0".to_owned()),
        ("directories chosen", "by Zipf 1".to_owned()),
        ("requests a session", SESSION_LENGTH.to_owned()),
    ];
    workload.parameters.extend(workload.body_bytes_mean().map(|mean| ("mean body", format!("{mean:.0} B"))));
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_the_published_ones() {
        let published = [0.039, 0.059, 0.088, 0.177, 0.353, 0.118, 0.071, 0.050, 0.044];
        for (chance, published) in file_chances().into_iter().zip(published) {
            assert!((chance - published).abs() < 0.0006, "{chance} for {published}");
        }
        assert!((file_chances().iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn directories_follow_zipf() {
        assert_eq!((directories(1.0), directories(100.0)), (Ok(26), Ok(91)));
        assert!(directories(0.0).is_err() && directories(f64::NAN).is_err() && directories(1e9).is_err());
        let workload = workload(100.0).unwrap();
        let mut counts = vec![0_u32; 91];
        for request in 0..100_000 {
            counts[workload.choose(9, request) / 36] += 1;
        }
        let ratio = f64::from(counts[0]) / f64::from(counts[9]);
        assert!((9.0..11.0).contains(&ratio), "the first is asked for {ratio} times as often as the tenth");
    }
}
