//! The start of a worker process: what it receives from its supervisor, and its confinement.

use crate::Options;
use crate::admin::socket::AdminSocket;
use crate::arrange::arrange;
use crate::certificates::{Certificates, Loaded};
use crate::confine::{Confinement, Outside};
use crate::failure::Failure;
use crate::link::SupervisorLink;
use crate::listeners::{Address, bindable};
use crate::memory::memory_limit;
use crate::messages::{AdminPath, ConfigParcel, QuicParcel, Start, ToWorker};
use crate::privileges::{drop_capabilities, harden};
use crate::quic::{QuicContext, ReceivedQuic};
use crate::shares::raise_open_files;
use crate::socket_file::SocketFile;
use crate::source::RecordedFiles;
use crate::start::{Bound, CompiledConfig, Supervised, confine, count_workers, filter_calls};
use flatout_engine::spec::Spec;
use flatout_net::quic::ids::{QuicSecrets, SECRET_BYTES};
use flatout_os::process::Identity;
use flatout_os::signals::Signals;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

impl Bound {
    /// Receives from the supervisor what [`Bound::open`] opens, and confines this process.
    ///
    /// # Errors
    /// If the configuration cannot be served by a process that is confined like this.
    pub(crate) fn receive(options: Options, link: &mut Option<SupervisorLink>) -> Result<Self, Failure> {
        harden()?;
        // They are for the supervisor, which forwards them.
        let signals = Signals::take().map_err(|error| Failure::runtime(format!("cannot block signals: {error}")))?;
        let Some(own) = link else { return Err(Failure::runtime("this process has no supervisor")) };
        exit_with_parent();
        take_program_name();
        let (ToWorker::Start(start), descriptors) = own.wait()? else {
            return Err(Failure::runtime("the supervisor did not say what to serve"));
        };
        ConfigParcel::check_count(descriptors.len(), start.descriptor_count())?;
        let mut descriptors = descriptors.into_iter();
        let Start { parcel, confinement, admin, quic, history, supervisor, identity, alive_interval_ms } = *start;
        let identity = identity.map(|(uid, gid)| Identity { uid, gid });
        own.pid = supervisor;
        own.alive_interval = alive_interval_ms.map(Duration::from_millis);
        let mut inherited = parcel.take_sockets(&mut descriptors);
        let mut config = options.source.load_from(&parcel.files, options.style)?;
        let live = arrange(&mut config, &[]);
        let worker_count = count_workers(&config);
        let limit = raise_open_files(config.open_files)?;
        let admin =
            admin.and_then(|AdminPath(path)| Some(AdminSocket::adopt(descriptors.next()?, SocketFile::adopt(&path)?)));
        let quic = receive_quic(worker_count, &quic, &mut descriptors);
        // Read once here: a confined process cannot.
        let _ = memory_limit();
        // Before the first thread: all of them inherit it.
        let confined = confine_process(config.seccomp, confinement.as_ref())?;
        let compiled = CompiledConfig::compile_for_worker(&config, identity)?;
        let confinement = confinement.filter(|_| confined);
        check_opened(&compiled.spec, confinement.as_ref())?;
        let certificates = Some(Certificates::new()?);
        let mut addresses = Vec::new();
        for id in bindable(&config, &live) {
            addresses.push(Address::bind(id, &config, worker_count, &quic, &mut inherited)?);
        }
        let link = link.take().ok_or_else(|| Failure::runtime("this process has no supervisor"))?;
        Ok(Self {
            options,
            signals,
            inherited,
            config,
            files: RecordedFiles::default(),
            compiled,
            worker_count,
            descriptors: limit,
            identity: None,
            certificates,
            loaded: Loaded::received(parcel.certificates),
            quic,
            addresses,
            admin,
            root_warning: None,
            supervised: Some(Supervised { link, history, confinement, identity }),
        })
    }
}

/// Checks that a worker process may read the folders that it has opened. A folder that was replaced after the supervisor
/// had decided on the confinement may be outside; nothing in it could be opened.
///
/// # Errors
/// If a folder is outside. The process that serves should go on, and the supervisor should try again.
pub(crate) fn check_opened(spec: &Spec, confinement: Option<&Confinement>) -> Result<(), Failure> {
    match confinement.and_then(|confinement| confinement.find_outside(&Confinement::of_thread(spec))) {
        Some(Outside::Path(path)) => Err(Failure::runtime(format!(
            "the worker process may not read {} (landlock): a path was switched to this folder after flatout had decided \
             which folders to permit\n  try again",
            path.display()
        ))),
        Some(Outside::Port(_)) | None => Ok(()),
    }
}

/// Makes the kernel kill this process if its supervisor exits without stopping it.
fn exit_with_parent() {
    // It also notices that the supervisor's end of the link is closed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Gives this process the name of the program, as it was started by another path: `ps` shows it, and so does the message
/// that a port is in use.
fn take_program_name() {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    if let Ok(name) = CString::new(name.as_bytes()) {
        // The name is for people.
        let _ = rustix::thread::set_name(&name);
    }
}

fn receive_quic(workers: usize, parcel: &QuicParcel, descriptors: &mut impl Iterator<Item = OwnedFd>) -> QuicContext {
    let mut secrets = [0; SECRET_BYTES];
    for (byte, received) in secrets.iter_mut().zip(&parcel.secrets) {
        *byte = *received;
    }
    let go = if parcel.must_wait { descriptors.next() } else { None };
    let predecessors = parcel.predecessors.iter();
    let predecessors =
        predecessors.map(|&(generation, count)| (generation, descriptors.take(count).collect())).collect();
    let secrets = QuicSecrets::from_bytes(secrets);
    QuicContext::of_worker(workers, ReceivedQuic { generation: parcel.generation, secrets, go, predecessors })
}

/// Confines this process permanently: it has no capabilities, can make no system call that serving never needs, and can
/// open and connect to nothing but what `confinement` permits. Returns whether Landlock confines it.
///
/// # Errors
/// If capabilities cannot be dropped.
pub(crate) fn confine_process(seccomp: bool, confinement: Option<&Confinement>) -> Result<bool, Failure> {
    drop_capabilities()?;
    let confined = confine(0, confinement);
    if seccomp {
        filter_calls(0);
    }
    Ok(confined)
}

#[cfg(test)]
mod tests {
    use super::{Confinement, check_opened};
    use flatout_engine::spec::{Sources, Spec};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// As when a link is switched a second time while a worker process starts for the first one.
    #[test]
    fn a_folder_that_was_replaced_after_the_confinement_was_decided_is_refused() {
        let folder = std::env::temp_dir().join(format!("flatout-receive-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let (link, next) = (folder.join("link"), folder.join("next"));
        let switch = |target: &str| {
            fs::create_dir_all(folder.join(target)).unwrap();
            symlink(target, &next).unwrap();
            fs::rename(&next, &link).unwrap();
        };
        let text = format!("site {{ listen \"127.0.0.1:0\"; files \"{}\"; }}", link.display());
        let config = flatout_config::load_text(&text);
        let compile = || Spec::compile(config.as_ref().unwrap(), &Sources::default()).unwrap();
        switch("b");
        let (spec, confinement) = (compile(), Confinement::of_thread(&compile()));
        assert!(check_opened(&spec, Some(&confinement)).is_ok());
        switch("c");
        let failure = check_opened(&compile(), Some(&confinement)).unwrap_err();
        assert!(failure.text.contains("/c (landlock): a path was switched"), "{failure}");
        assert!(check_opened(&compile(), None).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }
}
