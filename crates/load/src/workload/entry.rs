//! Entries of a workload, their expected responses, and the classes by which results are broken down.

use super::address::Address;
use crate::record::CLASSES_MAX;
use std::collections::HashMap;
use std::sync::Arc;

flatout_reason::reasons! {
    /// A method in a list or a log. Other methods change the server, or need content that no log has.
    #[derive(Default)]
    pub enum Method { name, }
    /// Retrieves content (RFC 9110 §9.3.1).
    #[default]
    Get, "GET";
    /// Retrieves only the head (RFC 9110 §9.3.2).
    Head, "HEAD";
    /// Requests the supported methods (RFC 9110 §9.3.7).
    Options, "OPTIONS";
}

impl Method {
    /// Parses a method.
    pub fn parse(text: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name().as_bytes() == text)
    }
}

/// The content of a request in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContent {
    /// The name of a file with the content, which is not read yet.
    File(Box<str>),
    /// The content.
    Bytes(Arc<[u8]>),
}

/// A possible request.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadEntry {
    /// The method, unless the list or the command line specifies another.
    pub method: Method,
    /// The method in a list, which may be any.
    pub own_method: Option<Box<str>>,
    /// The content of the request, if a list specifies one.
    pub content: Option<EntryContent>,
    /// The URL.
    pub address: Address,
    /// Value of the Host field, if a log contains it. Otherwise it is derived from the address.
    pub host: Option<Box<str>>,
    /// Relative frequency: 0 or more. Unused if entries are requested in turn.
    pub weight: f64,
    /// Expected content length in bytes, if known. A response of a different length is wrong.
    pub body_bytes: Option<u64>,
    /// SHA-256 of the content, if known.
    pub sha256: Option<[u8; 32]>,
    /// Index of the entry's class.
    pub class: u16,
}

impl WorkloadEntry {
    /// Creates a GET request for an address, without an expected response.
    pub const fn get(address: Address) -> Self {
        Self {
            method: Method::Get,
            own_method: None,
            content: None,
            address,
            host: None,
            weight: 1.0,
            body_bytes: None,
            sha256: None,
            class: 0,
        }
    }

    /// Returns the method of the entry.
    pub fn method_name(&self) -> &str {
        self.own_method.as_deref().unwrap_or(self.method.name())
    }
}

/// Part of a workload for which results are reported separately.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Label in reports.
    pub name: String,
    /// Share of all requests, 0 to 1.
    pub share: f64,
    /// Mean of the expected body sizes in bytes; `None` if a size is unknown.
    pub body_bytes_mean: Option<f64>,
}

impl Class {
    /// Creates a class whose statistics are filled in later.
    pub(super) const fn named(name: String) -> Self {
        Self { name, share: 0.0, body_bytes_mean: None }
    }
}

/// Maximum number of entries with known sizes for which each entry is a class. If there are more, each range of sizes is
/// a class.
pub const CLASSES_OF_ENTRIES_MAX: usize = 32;

/// Name of the class of all URLs for which there is no other class.
const OTHERS: &str = "other URLs";

/// Size classes: exclusive upper bound in bytes, and name.
const SIZES: [(u64, &str); 6] = [
    (1 << 10, "under 1 KiB"),
    (10 << 10, "1 to 10 KiB"),
    (100 << 10, "10 to 100 KiB"),
    (1 << 20, "100 KiB to 1 MiB"),
    (u64::MAX, "1 MiB and more"),
    (u64::MAX, "unknown size"),
];

/// Assigns a class to every URL, in the order in which they are listed. The URLs beyond [`CLASSES_MAX`] share the last.
fn classify_by_url(entries: &mut [WorkloadEntry]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let mut numbers: HashMap<String, u16> = HashMap::new();
    for entry in entries {
        let method = Some(entry.method_name()).filter(|name| *name != Method::Get.name()).unwrap_or("");
        let space = if method.is_empty() { "" } else { " " };
        let name = format!("{method}{space}{}", entry.address);
        let next = classes.len() as u16;
        entry.class = match numbers.get(&name) {
            Some(class) => *class,
            None if classes.len() < CLASSES_MAX - 1 => {
                classes.push(Class::named(name.clone()));
                numbers.insert(name, next);
                next
            }
            None => (CLASSES_MAX - 1) as u16,
        };
        if usize::from(entry.class) == classes.len() {
            classes.push(Class::named(OTHERS.to_owned()));
        }
    }
    classes
}

/// Assigns a class to every entry.
pub(super) fn classify(entries: &mut [WorkloadEntry]) -> Vec<Class> {
    if entries.len() <= CLASSES_OF_ENTRIES_MAX || entries.iter().all(|entry| entry.body_bytes.is_none()) {
        return classify_by_url(entries);
    }
    let range = |entry: &WorkloadEntry| match entry.body_bytes {
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

/// Calculates the shares and mean sizes of classes.
pub(super) fn count_classes(
    classes: &mut [Class],
    entries: &[WorkloadEntry],
    total: f64,
    weight: impl Fn(&WorkloadEntry) -> f64,
) {
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
