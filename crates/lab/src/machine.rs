//! The machine of a measurement, without which absolute figures mean little.

use crate::cores::cores_allowed;
use flatout_load::report::MachineReport;
use serde::Serialize;
use std::fs;

/// Properties of the machine that affect a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Model name of the processor, from the kernel.
    pub cpu_model: String,
    /// Cores available to this process.
    pub cores: usize,
    /// Kernel release, for example `6.12.0`.
    pub kernel: String,
    /// Main memory, in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// Reads this machine. Unreadable values are reported as unknown, never guessed.
    pub fn here() -> Self {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory_info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu_model: cpu_model(&cpu_info),
            cores: cores_allowed().len(),
            kernel: known(kernel.trim()),
            memory_bytes: memory_bytes(&memory_info),
        }
    }
}

/// Kernel settings that affect a run.
const SYSCTLS: [&str; 7] = [
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_tw_reuse",
    "kernel.sched_rt_runtime_us",
    "fs.nr_open",
];

impl Machine {
    /// The same with everything needed to reproduce the measurement.
    pub fn report(&self) -> MachineReport {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let sysctls = SYSCTLS.iter().filter_map(|name| {
            let value = read(&format!("/proc/sys/{}", name.replace('.', "/")))?;
            Some(((*name).to_owned(), value.replace('\t', " ")))
        });
        MachineReport {
            cpu_model: self.cpu_model.clone(),
            cpu_mhz: cpu_mhz(
                read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").as_deref(),
                &fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
            ),
            cores: self.cores,
            kernel: self.kernel.clone(),
            memory_bytes: self.memory_bytes,
            host: read("/proc/sys/kernel/hostname"),
            cpu_governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            files_max: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            sysctls: sysctls.collect(),
            binary_digest: binary_digest(),
        }
    }
}

/// SHA-256 of this program's file, in hexadecimal.
fn binary_digest() -> Option<String> {
    let bytes = fs::read("/proc/self/exe").ok()?;
    Some(flatout_net::client::sha256(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cores, memory_gib) = (self.cores, self.memory_bytes as f64 / f64::from(1 << 30));
        let plural = if cores == 1 { "core" } else { "cores" };
        write!(formatter, "{}, {cores} {plural}, {memory_gib:.1} GiB, Linux {}", self.cpu_model, self.kernel)
    }
}

fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

/// The processor's model: x86 has `model name`; several ARM kernels have no model at all, only `Hardware` or nothing.
fn cpu_model(cpu_info: &str) -> String {
    let field = |name: &str| {
        cpu_info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    field("model name").or_else(|| field("Hardware")).unwrap_or_else(|| "unknown CPU".to_owned())
}

/// The maximum clock in kHz, if the kernel has it, else the first core's current one.
fn cpu_mhz(max_khz: Option<&str>, cpu_info: &str) -> Option<u64> {
    let max = max_khz.and_then(|text| text.parse::<u64>().ok()).map(|khz| khz / 1000);
    let present = || {
        let line = cpu_info.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
        let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
        Some(mhz.round() as u64)
    };
    max.or_else(present).filter(|mhz| *mhz > 0)
}

fn memory_bytes(memory_info: &str) -> u64 {
    let kibibytes = memory_info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{Machine, cpu_mhz, cpu_model, memory_bytes};

    #[test]
    fn fields_are_found_in_what_kernels_print() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model("processor : 0\nHardware : BCM2835\n"), "BCM2835");
        assert_eq!(cpu_model(""), "unknown CPU");
        assert_eq!(memory_bytes("MemTotal:       16303428 kB\nMemFree: 1 kB\n"), 16_303_428 * 1024);
        assert_eq!(memory_bytes("nonsense"), 0);
        let cpu_info = "model name\t: x\ncpu MHz\t\t: 1999.998\n";
        assert_eq!(cpu_mhz(None, cpu_info), Some(2000));
        assert_eq!(cpu_mhz(Some("3400000"), cpu_info), Some(3400));
        assert_eq!(cpu_mhz(Some("?"), ""), None);
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && machine.memory_bytes > 0 && machine.kernel != "unknown");
    }
}
