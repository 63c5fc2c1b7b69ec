//! The machine on which a measurement is made; without it, absolute figures mean little.

use crate::cores::cores_allowed;
use data_encoding::HEXLOWER;
use flatout_load::report::MachineReport;
use flatout_os::procfs::{field, read_memory_total, sysctl};
use std::fs::{self, File};

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

/// Reads the properties of this machine. Unreadable values are reported as unknown, never guessed.
pub fn here() -> MachineReport {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}")).ok()?;
        Some(text.trim().to_owned())
    };
    let sysctls = SYSCTLS.iter().filter_map(|name| Some(((*name).to_owned(), sysctl(name)?.replace('\t', " "))));
    MachineReport {
        cpu_model: cpu_model(&cpu_info),
        cpu_mhz: cpu_mhz(read("cpuinfo_max_freq").as_deref(), &cpu_info),
        cores: cores_allowed().len(),
        kernel: sysctl("kernel.osrelease").unwrap_or_else(|| "unknown".to_owned()),
        memory_bytes: read_memory_total().unwrap_or(0),
        host: sysctl("kernel.hostname"),
        cpu_governor: read("scaling_governor"),
        files_max: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        sysctls: sysctls.collect(),
        binary_digest: binary_digest(),
    }
}

/// Returns the SHA-256 of the flatout executable, in hexadecimal.
fn binary_digest() -> Option<String> {
    let file = File::open("/proc/self/exe").ok()?;
    Some(HEXLOWER.encode(&flatout_client::sha256(file).ok()?))
}

/// Returns the processor model. On x86 it is `model name`; several ARM kernels report only `Hardware`, or nothing.
fn cpu_model(cpu_info: &str) -> String {
    let model = field(cpu_info, "model name").or_else(|| field(cpu_info, "Hardware"));
    model.unwrap_or("unknown CPU").to_owned()
}

/// Returns the maximum clock rate in MHz if the kernel reports it, otherwise the current rate of the first core.
fn cpu_mhz(max_khz: Option<&str>, cpu_info: &str) -> Option<u64> {
    let max = max_khz.and_then(|text| text.parse::<u64>().ok()).map(|khz| khz / 1000);
    let present = || Some(field(cpu_info, "cpu MHz")?.parse::<f64>().ok()?.round() as u64);
    max.or_else(present).filter(|mhz| *mhz > 0)
}

#[cfg(test)]
mod tests {
    use super::{cpu_mhz, cpu_model, here};

    #[test]
    fn fields_are_found_in_what_kernels_print() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model("processor : 0\nHardware : BCM2835\n"), "BCM2835");
        assert_eq!(cpu_model(""), "unknown CPU");
        let cpu_info = "model name\t: x\ncpu MHz\t\t: 1999.998\n";
        assert_eq!(cpu_mhz(None, cpu_info), Some(2000));
        assert_eq!(cpu_mhz(Some("3400000"), cpu_info), Some(3400));
        assert_eq!(cpu_mhz(Some("?"), ""), None);
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = here();
        assert!(machine.cores >= 1 && machine.memory_bytes > 0 && machine.kernel != "unknown");
    }
}
