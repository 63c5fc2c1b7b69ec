//! The bench: the folder with the site and the configurations, the programs found, and the cores.

use super::configs::{CERTIFICATE, KEY};
use super::cores::Cores;
use super::{dynamic, machine, site};
use crate::failure::{Context, Outcome};
use crate::shell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Without these, nothing can be measured at all.
const TOOLS: &[&str] = &["taskset", "setpriv", "curl", "openssl", "wrk"];

/// Configurations longer than this are shown by their ends.
const SHOWN_LINES_MAX: usize = 60;

/// The folder with the site and the configurations, and the programs found.
pub(super) struct Bench {
    folder: PathBuf,
    flatout: PathBuf,
    cores: Cores,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Left behind at worst; the system clears its temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    /// Writes the site and checks that the measuring itself can work.
    pub(super) fn prepare(flatout: PathBuf) -> Outcome<Self> {
        for tool in TOOLS {
            if !shell::is_installed(tool) {
                return Err(format!("{tool} is not installed; tools/setup.sh bench installs it").into());
            }
        }
        let cores = Cores::choose()?;
        eprintln!("server on core {}, client on core {}", cores.server, cores.client);
        let made = shell::output_of(Command::new("mktemp").args(["-d", "-t", "flatout-bench.XXXXXX"]))?;
        let folder = PathBuf::from(made.trim());
        let bench = Self { folder, flatout, cores };
        // Most servers drop root's rights before they read a file.
        shell::output_of(Command::new("chmod").arg("0755").arg(&bench.folder))?;
        site::write(&bench.folder)?;
        std::fs::write(bench.wrk_script(), super::clients::WRK_SCRIPT).cannot("write wrk's script")?;
        bench.write_certificate()?;
        Ok(bench)
    }

    /// ECDSA P-256, which is what certificate authorities hand out by default.
    fn write_certificate(&self) -> Outcome<()> {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "30", "-subj", "/CN=bench.example"]);
        openssl.args(["-addext", "subjectAltName=DNS:bench.example,IP:127.0.0.1"]);
        openssl.arg("-keyout").arg(self.folder.join(KEY)).arg("-out").arg(self.folder.join(CERTIFICATE));
        shell::output_of(&mut openssl).map(|_| ())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn wrk_script(&self) -> PathBuf {
        self.folder.join("count.lua")
    }

    pub(super) fn flatout(&self) -> &Path {
        &self.flatout
    }

    pub(super) fn cores(&self) -> Cores {
        self.cores
    }

    /// A command on the client's core.
    pub(super) fn on_client_core(&self, command: &Command) -> Command {
        pinned(self.cores.client, command)
    }

    /// A command on the server's core.
    pub(super) fn on_server_core(&self, command: &Command) -> Command {
        pinned(self.cores.server, command)
    }

    /// What each program calls itself.
    pub(super) fn versions(&self) -> Vec<(&'static str, String)> {
        let flatout = machine::first_line(Command::new(&self.flatout).arg("--version"));
        let mut versions = vec![("flatout", flatout)];
        let asked: [(&str, &[&str]); 11] = [
            ("nginx", &["-v"]),
            ("lighttpd", &["-v"]),
            ("apache2", &["-v"]),
            ("h2o", &["--version"]),
            ("varnishd", &["-V"]),
            ("haproxy", &["-v"]),
            ("traffic_server", &["-V"]),
            ("wrk", &["-v"]),
            ("h2load", &["--version"]),
            ("ab", &["-V"]),
            ("openssl", &["version"]),
        ];
        let fpm = dynamic::php_fpm_program();
        versions.push((
            "php-fpm",
            fpm.map_or_else(|| "not installed".to_owned(), |fpm| machine::first_line(Command::new(fpm).arg("-v"))),
        ));
        let lua = ["-W", "-f", "${Package} ${Version}", "libnginx-mod-http-lua"];
        versions.push(("nginx's Lua module", machine::said_by("dpkg-query", &lua)));
        versions.extend(asked.map(|(program, args)| (program, machine::said_by(program, args))));
        versions
    }

    /// Text with this run's own paths and port made readable, and the middle of what is very long left out.
    pub(super) fn shown(&self, text: &str, port: u16) -> String {
        abridged(&self.without_paths(text).replace(&port.to_string(), "PORT"))
    }

    /// Text with this run's own paths made readable.
    pub(super) fn without_paths(&self, text: &str) -> String {
        let site = self.folder.join(site::SITE).display().to_string();
        let folder = self.folder.display().to_string();
        let flatout = self.flatout.display().to_string();
        let text = text.replace(&site, "SITE").replace(&folder, "DIR").replace(&flatout, "flatout");
        text.replace("/usr/sbin/", "").replace("/usr/bin/", "")
    }
}

fn abridged(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= SHOWN_LINES_MAX {
        return text.to_owned();
    }
    let (first, last) = (&lines[..SHOWN_LINES_MAX / 4], &lines[lines.len() - SHOWN_LINES_MAX / 4..]);
    let left_out = lines.len() - first.len() - last.len();
    format!("{}\n… {left_out} lines more of the same kind …\n{}\n", first.join("\n"), last.join("\n"))
}

/// A command on one core, which ends when we do, however we do.
fn pinned(core: usize, command: &Command) -> Command {
    let mut pinned = Command::new("setpriv");
    pinned.args(["--pdeathsig", "TERM", "taskset", "-c", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    pinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_command_keeps_its_words() {
        let mut command = Command::new("wrk");
        command.arg("-t1");
        assert_eq!(shell::shown(&pinned(3, &command)), "setpriv --pdeathsig TERM taskset -c 3 wrk -t1");
    }

    #[test]
    fn only_what_is_very_long_is_abridged() {
        let lines = |count| (0..count).map(|at| format!("{at}\n")).collect::<String>();
        assert_eq!(abridged(&lines(60)), lines(60));
        let text = abridged(&lines(1000));
        assert!(text.starts_with("0\n1\n") && text.ends_with("998\n999\n"), "{text}");
        assert!(text.contains("… 970 lines more"), "{text}");
    }
}
