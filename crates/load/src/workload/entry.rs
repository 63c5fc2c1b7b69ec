//! What can be asked for, what is known of its answer, and the classes that results are broken down by.

use super::address::Address;

/// A method that lists and logs ask with. Others change the server, or need a body that no log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    #[default]
    Get,
    /// HEAD.
    Head,
    /// OPTIONS.
    Options,
}

impl Method {
    /// The method of this name.
    pub fn parse(text: &[u8]) -> Option<Self> {
        [Self::Get, Self::Head, Self::Options].into_iter().find(|method| method.name().as_bytes() == text)
    }

    /// The name, as the request line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
        }
    }
}

/// One thing to ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The method; what the command line says goes before it.
    pub method: Method,
    /// The URL.
    pub address: Address,
    /// The Host field's value, where a log names one; otherwise it follows from the address.
    pub host: Option<Box<str>>,
    /// How often it is asked for, beside the others: 0 or more. Without meaning where entries are asked for in turn.
    pub weight: f64,
    /// Bytes of content its answer has, where known: an answer of another size is wrong.
    pub body_bytes: Option<u64>,
    /// SHA-256 of that content, where known.
    pub sha256: Option<[u8; 32]>,
    /// Its class, an index.
    pub class: u16,
}

impl Entry {
    /// GET for an address of which nothing is known.
    pub const fn get(address: Address) -> Self {
        Self { method: Method::Get, address, host: None, weight: 1.0, body_bytes: None, sha256: None, class: 0 }
    }
}

/// A part of a workload that results are broken down by.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What it is called.
    pub name: String,
    /// Share of all requests that ask for it, 0 to 1.
    pub share: f64,
    /// Mean of its bodies that are expected, in bytes; `None` when one is not known.
    pub body_bytes_mean: Option<f64>,
}

impl Class {
    /// A class of which the rest is filled in later.
    pub(super) const fn named(name: String) -> Self {
        Self { name, share: 0.0, body_bytes_mean: None }
    }
}

/// With so many entries each is a class of its own; with more, each range of sizes is one.
pub const CLASSES_OF_ENTRIES_MAX: usize = 32;

/// Classes by size: what is smaller than each, and what that is called.
const SIZES: [(u64, &str); 6] = [
    (1 << 10, "under 1 KiB"),
    (10 << 10, "1 to 10 KiB"),
    (100 << 10, "10 to 100 KiB"),
    (1 << 20, "100 KiB to 1 MiB"),
    (u64::MAX, "1 MiB and more"),
    (u64::MAX, "size not known"),
];

/// Gives every entry a class.
pub(super) fn classify(entries: &mut [Entry]) -> Vec<Class> {
    if entries.len() <= CLASSES_OF_ENTRIES_MAX {
        return (0..)
            .zip(entries)
            .map(|(class, entry)| {
                entry.class = class;
                let method = if entry.method == Method::Get { "" } else { entry.method.name() };
                let space = if method.is_empty() { "" } else { " " };
                Class::named(format!("{method}{space}{}", entry.address))
            })
            .collect();
    }
    let range = |entry: &Entry| match entry.body_bytes {
        None => SIZES.len() - 1,
        Some(bytes) => SIZES.iter().position(|(end, _)| bytes < *end).unwrap_or(SIZES.len() - 2),
    };
    let mut numbers: [Option<u16>; SIZES.len()] = [None; SIZES.len()];
    for entry in entries.iter() {
        numbers[range(entry)] = Some(0);
    }
    let mut classes = Vec::new();
    for (number, (_, name)) in numbers.iter_mut().zip(SIZES) {
        if let Some(number) = number {
            *number = classes.len() as u16;
            classes.push(Class::named(name.to_owned()));
        }
    }
    for entry in entries {
        entry.class = numbers[range(entry)].unwrap_or(0);
    }
    classes
}

/// Fills in the shares and mean sizes of classes.
pub(super) fn count_classes(classes: &mut [Class], entries: &[Entry], total: f64, weight: impl Fn(&Entry) -> f64) {
    let mut sums = vec![(0.0, Some(0.0)); classes.len()];
    for entry in entries {
        if let Some((weights, bytes)) = sums.get_mut(usize::from(entry.class)) {
            let weight = weight(entry);
            *weights += weight;
            *bytes = bytes.zip(entry.body_bytes).map(|(sum, bytes)| sum + bytes as f64 * weight);
        }
    }
    for (class, (weights, bytes)) in classes.iter_mut().zip(sums) {
        class.share = if total > 0.0 { weights / total } else { 0.0 };
        class.body_bytes_mean = bytes.filter(|_| weights > 0.0).map(|bytes| bytes / weights);
    }
}
