//! The seccomp filter of worker processes: system calls that serving never needs fail with EPERM.
//!
//! A worker process enters it before it starts a thread, and all its threads inherit it. It cannot be left. In a process
//! without a supervisor, each worker thread enters it, and the control thread does not: it starts the new program in an
//! upgrade.
//!
//! The filter is a denylist. An allowlist would be tighter, but it would have to cover whatever each supported version
//! of the C library and of the kernel needs. System calls of another architecture kill the process. Those of the x32
//! ABI, which distributions disable, are not covered.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::io;

/// The calls that always fail, by the damage that they could do.
const REFUSED: &[(&str, &[c_long])] = &[
    ("runs another program", &[libc::SYS_execve, libc::SYS_execveat]),
    #[cfg(target_arch = "x86_64")]
    ("starts another process", &[libc::SYS_fork, libc::SYS_vfork]),
    (
        "reads or changes another process",
        &[
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_madvise,
            libc::SYS_kcmp,
        ],
    ),
    (
        "sends a signal to another process",
        &[libc::SYS_tkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_pidfd_send_signal],
    ),
    (
        "changes the identity of the process",
        &[
            libc::SYS_setuid,
            libc::SYS_setgid,
            libc::SYS_setreuid,
            libc::SYS_setregid,
            libc::SYS_setresuid,
            libc::SYS_setresgid,
            libc::SYS_setfsuid,
            libc::SYS_setfsgid,
            libc::SYS_setgroups,
            libc::SYS_capset,
        ],
    ),
    (
        "changes namespaces and mounts",
        &[
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_chroot,
            libc::SYS_pivot_root,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
        ],
    ),
    (
        "belongs to a large kernel subsystem that attacks have used",
        &[
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_keyctl,
            libc::SYS_personality,
            libc::SYS_vmsplice,
        ],
    ),
    (
        "opens a file by handle, bypassing folder restrictions",
        &[libc::SYS_open_by_handle_at, libc::SYS_name_to_handle_at],
    ),
    (
        "administers the machine",
        &[
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_acct,
            libc::SYS_quotactl,
            libc::SYS_syslog,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_adjtimex,
            libc::SYS_clock_adjtime,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_fanotify_init,
        ],
    ),
];

/// The address families that serving, origins, and name resolution use.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The protocols of their sockets: the default, and by name. Landlock does not check the ports of others, such as MPTCP.
const PROTOCOLS: [libc::c_int; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];

/// Filters this thread, and the threads that it starts, permanently. The process must have set no_new_privs.
///
/// # Errors
/// If the kernel has no seccomp filters or refuses.
pub(crate) fn enter() -> io::Result<()> {
    for program in [refusals()?, clone3()?] {
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The filter of [`REFUSED`], and of what depends on arguments.
fn refusals() -> io::Result<BpfProgram> {
    let condition = |argument: u8, operator: SeccompCmpOp, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)
    };
    let rule = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions).map_err(io::Error::other);
    let always = REFUSED.iter().flat_map(|(_, calls)| *calls).map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = always.collect();
    // Threads are started, processes are not.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(vec![condition(0, SeccompCmpOp::MaskedEq(thread), 0)?])?]);
    // The C library signals the process's own threads, for example to abort.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, vec![rule(vec![condition(0, SeccompCmpOp::Ne, own)?])?]);
    }
    let others = |argument: u8, allowed: &[libc::c_int]| {
        let others = allowed.iter().map(|number| condition(argument, SeccompCmpOp::Ne, *number as u64));
        rule(others.collect::<io::Result<_>>()?)
    };
    rules.insert(libc::SYS_socket, vec![others(0, &FAMILIES)?, others(2, &PROTOCOLS)?]);
    // It would connect without a check of the port.
    let fast_open = libc::MSG_FASTOPEN as u64;
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(call, vec![rule(vec![condition(flags, SeccompCmpOp::MaskedEq(fast_open), fast_open)?])?]);
    }
    compile(rules, libc::EPERM)
}

/// Makes clone3 fail with ENOSYS, because a filter cannot see its flags. The C library then falls back to clone.
fn clone3() -> io::Result<BpfProgram> {
    compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

fn compile(rules: BTreeMap<c_long, Vec<SeccompRule>>, errno: libc::c_int) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refused = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).map_err(io::Error::other)?;
    BpfProgram::try_from(filter).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, REFUSED, enter};
    use rustix::net::{AddressFamily, SendFlags, SocketType, socket};
    use rustix::process::{
        Pid, PidfdFlags, PidfdGetfdFlags, getpid, kill_process, pidfd_getfd, pidfd_open, test_kill_process,
    };
    use std::collections::BTreeSet;
    use std::io::{self, ErrorKind};
    use std::process::Command;
    use std::thread;

    /// Copies a descriptor of this process with pidfd_getfd, which also works on other processes.
    fn steal_descriptor() -> io::Result<()> {
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(pidfd_getfd(this, 2, PidfdGetfdFlags::empty()).map(drop)?)
    }

    /// Connects with MSG_FASTOPEN to a listener of this process.
    fn connect_by_sending() -> io::Result<()> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
        Ok(rustix::net::sendto(&socket, b"x", flags, &listener.local_addr()?).map(drop)?)
    }

    /// Each call with the kind of its error, on a thread with or without the filter.
    fn attempts(filtered: bool) -> Vec<(&'static str, Option<ErrorKind>)> {
        let attempt = move || {
            if filtered {
                rustix::thread::set_no_new_privs(true).unwrap();
                enter().unwrap();
            }
            // Threads start as before.
            thread::spawn(|| ()).join().unwrap();
            assert!(test_kill_process(getpid()).is_ok());
            for family in FAMILIES {
                assert!(socket(AddressFamily::from_raw(family as u16), SocketType::DGRAM, None).is_ok(), "{family}");
            }
            let parent = Pid::from_raw(std::os::unix::process::parent_id().cast_signed()).unwrap();
            let mptcp = rustix::net::Protocol::from_raw(std::num::NonZero::new(libc::IPPROTO_MPTCP as u32).unwrap());
            let mptcp = socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp));
            let tried: [(&str, io::Result<()>); 7] = [
                ("socket of another protocol", mptcp.map(drop).map_err(Into::into)),
                ("connection without connect", connect_by_sending()),
                ("exec", Command::new("/bin/true").status().map(drop)),
                ("signal", test_kill_process(parent).map_err(Into::into)),
                ("stop", kill_process(Pid::INIT, rustix::process::Signal::URG).map_err(Into::into)),
                (
                    "socket of another family",
                    socket(AddressFamily::VSOCK, SocketType::STREAM, None).map(drop).map_err(Into::into),
                ),
                ("descriptor of a process", steal_descriptor()),
            ];
            tried.map(|(name, result)| (name, result.err().map(|error| error.kind()))).to_vec()
        };
        thread::spawn(attempt).join().unwrap()
    }

    #[test]
    fn a_filtered_thread_serves_and_does_nothing_else() {
        for (name, error) in attempts(true) {
            assert_eq!(error, Some(ErrorKind::PermissionDenied), "{name}");
        }
        // Without the filter, the attempts that need no privilege succeed.
        for (name, error) in attempts(false) {
            assert!(
                !["exec", "signal", "descriptor of a process", "connection without connect"].contains(&name)
                    || error.is_none(),
                "{name}: {error:?}"
            );
        }
    }

    #[test]
    fn each_call_is_listed_once() {
        let all: Vec<_> = REFUSED.iter().flat_map(|(_, calls)| *calls).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
