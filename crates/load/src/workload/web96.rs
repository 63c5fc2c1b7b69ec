//! Workload similar to SPECweb96: directories of the same 36 files in four size classes.
//!
//! The number of directories grows with the intended load, 10·√(rate/5), so that a faster server also needs a larger
//! working set. Directories are chosen uniformly, classes with 35/50/14/1 %, and files within a class by a Poisson
//! distribution that is truncated to 0 to 8 and renormalised. Its λ is a parameter, which is printed with every result.
//! The value of λ in SPECweb96 is not published in verifiable form, so results are not comparable with those of
//! SPECweb96. "SPECweb" is a trademark, and results under that name require the licensed kit.

use super::{Address, Workload, WorkloadEntry};

/// Number of files per class and directory.
pub const FILES: usize = 9;

/// Number of classes.
pub const CLASSES: usize = 4;

/// Share of requests for each class.
pub const CLASS_SHARES: [f64; CLASSES] = [0.35, 0.50, 0.14, 0.01];

/// Default λ, the middle of 0 to 8.
pub const LAMBDA_DEFAULT: f64 = 4.0;

/// Maximum number of directories, about 95 GiB at 4.9 MiB each.
pub const DIRECTORIES_MAX: u64 = 20_000;

/// Total size of the files in a directory, in bytes.
pub const DIRECTORY_BYTES: u64 = 5_119_484;

/// The reason the parameters of a workload are invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// The load is not above 0, or requires more than [`DIRECTORIES_MAX`] directories.
    #[error("a load of {0:?} is out of range: use a number above 0 that needs at most {DIRECTORIES_MAX} directories")]
    Load(f64),
    /// λ is not above 0, or is above 100.
    #[error("lambda is {0}; use a number above 0 and at most 100")]
    Lambda(f64),
}

/// Returns the size of file `file` (0 to 8) of class `class` (0 to 3) in bytes. Sizes are multiples of 0.1 KiB, ten
/// times as large in each further class, rounded down.
pub const fn file_bytes(class: usize, file: usize) -> u64 {
    let tenths = (file as u64 + 1) * [1, 10, 100, 1000][class % CLASSES];
    tenths * 1024 / 10
}

/// Returns the probabilities of files 0 to 8 within a class: Poisson with mean `lambda`, truncated and renormalised.
pub fn file_chances(lambda: f64) -> [f64; FILES] {
    // The common factor e^-λ cancels in the division.
    let mut term = 1.0;
    let terms: [f64; FILES] = std::array::from_fn(|file| {
        if file > 0 {
            term *= lambda / file as f64;
        }
        term
    });
    let total: f64 = terms.iter().sum();
    terms.map(|term| term / total)
}

/// Returns the number of directories for this many operations per second: 10·√(rate/5), rounded, at least 1.
pub fn directories(ops_per_s: f64) -> Result<u64, ShapeError> {
    check_directories(10.0 * (ops_per_s / 5.0).sqrt(), ops_per_s)
}

/// Rounds a number of directories and checks its bounds.
pub(super) fn check_directories(directories: f64, load: f64) -> Result<u64, ShapeError> {
    let directories = directories.round().max(1.0);
    if load > 0.0 && directories <= DIRECTORIES_MAX as f64 {
        Ok(directories as u64)
    } else {
        Err(ShapeError::Load(load))
    }
}

/// Returns the workload for a server intended for this many operations per second.
///
/// # Errors
/// Fails if the rate or λ is invalid.
pub fn workload(ops_per_s: f64, lambda: f64) -> Result<Workload, ShapeError> {
    if !(lambda > 0.0 && lambda <= 100.0) {
        return Err(ShapeError::Lambda(lambda));
    }
    let directories = directories(ops_per_s)?;
    let chances = file_chances(lambda);
    let mut workload = build("web96-like", directories, |_| 1.0, &chances).ok_or(ShapeError::Load(ops_per_s))?;
    workload.parameters = vec![
        ("operations/s", ops_per_s.to_string()),
        ("directories", directories.to_string()),
        ("set", format!("{} B", directories * DIRECTORY_BYTES)),
        ("classes", "35/50/14/1 %".to_owned()),
        ("in a class", format!("Poisson over 0 to 8, truncated and normalized, lambda {lambda}")),
        ("directories chosen", "evenly".to_owned()),
    ];
    workload.parameters.extend(workload.body_bytes_mean().map(|mean| ("mean body", format!("{mean:.0} B"))));
    Ok(workload)
}

/// Creates the workload from all files of all directories, with their probabilities.
pub(super) fn build(
    name: &'static str,
    directories: u64,
    directory_weight: impl Fn(u64) -> f64,
    file_chances: &[f64; FILES],
) -> Option<Workload> {
    let mut entries = Vec::with_capacity(directories as usize * CLASSES * FILES);
    for directory in 0..directories {
        let weight = directory_weight(directory);
        for (class, share) in CLASS_SHARES.iter().enumerate() {
            for (file, chance) in file_chances.iter().enumerate() {
                let target = format!("/dir{directory:05}/class{class}_{file}").into();
                entries.push(WorkloadEntry {
                    weight: weight * share * chance,
                    body_bytes: Some(file_bytes(class, file)),
                    class: class as u16,
                    ..WorkloadEntry::get(Address { origin: None, target })
                });
            }
        }
    }
    let names = (0..CLASSES).map(|class| format!("class {class}")).collect();
    Workload::by_weight_in_classes(name, entries, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_as_large_as_the_originals() {
        assert_eq!(
            (0..FILES).map(|file| file_bytes(0, file)).collect::<Vec<_>>(),
            [102, 204, 307, 409, 512, 614, 716, 819, 921]
        );
        assert_eq!((file_bytes(1, 0), file_bytes(1, 8)), (1024, 9216));
        assert_eq!((file_bytes(2, 0), file_bytes(2, 8)), (10_240, 92_160));
        assert_eq!((file_bytes(3, 0), file_bytes(3, 8)), (102_400, 921_600));
        let total: u64 = (0..CLASSES).flat_map(|class| (0..FILES).map(move |file| file_bytes(class, file))).sum();
        assert_eq!(total, DIRECTORY_BYTES);
    }

    #[test]
    fn the_set_grows_with_the_root_of_the_rate() {
        let of = |rate| directories(rate).unwrap();
        assert_eq!((of(0.01), of(5.0), of(20.0), of(100.0), of(1000.0)), (1, 10, 20, 45, 141));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(directories(rate).is_err(), "{rate}");
        }
        for lambda in [0.0, -1.0, f64::NAN, 101.0] {
            assert!(workload(5.0, lambda).is_err(), "{lambda}");
        }
    }

    #[test]
    fn chances_within_a_class_are_poissons() {
        let chances = file_chances(4.0);
        assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // In a Poisson distribution with mean 4, the probability of 0 to 8 is 0.97864, and that of 4 is 0.19537 (from
        // tables of the distribution).
        assert!((chances[4] - 0.195_367 / 0.978_637).abs() < 1e-6, "{chances:?}");
        assert!((chances[3] - chances[4]).abs() < 1e-12);
        // As λ approaches 0, only the first file remains.
        assert!(file_chances(1e-9)[0] > 0.999_999);
    }

    #[test]
    fn requests_keep_to_the_shares() {
        let workload = workload(20.0, LAMBDA_DEFAULT).unwrap();
        assert_eq!(workload.entries.len(), 20 * 36);
        let mut classes = [0_u32; CLASSES];
        let mut directories = [0_u32; 20];
        for request in 0..200_000 {
            let chosen = workload.choose(5, request);
            classes[usize::from(workload.entries[chosen].class)] += 1;
            directories[chosen / 36] += 1;
        }
        for (count, share) in classes.into_iter().zip(CLASS_SHARES) {
            let expected = share * 200_000.0;
            assert!((f64::from(count) - expected).abs() < 5.0 * expected.sqrt(), "{classes:?}");
        }
        assert!(directories.iter().all(|count| count.abs_diff(10_000) < 500), "{directories:?}");
        for (class, share) in workload.classes.iter().zip(CLASS_SHARES) {
            assert!((class.share - share).abs() < 1e-9);
        }
        // About 15,000 bytes if the mean of each class is its middle; the mean of a truncated Poisson distribution is
        // slightly lower.
        let mean = workload.body_bytes_mean().unwrap();
        assert!((14_000.0..15_027.0).contains(&mean), "{mean}");
    }
}
