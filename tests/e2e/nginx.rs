//! nginx with the settings of a test.

use super::harness::{Folder, wait_until};
use super::process::Running;
use super::tool::tool;
use std::process::Stdio;

/// Starts nginx with these settings in its `http` block, and its files in `folder`. Waits until `is_ready`.
pub(crate) fn start(folder: &Folder, settings: &str, is_ready: impl Fn() -> bool) -> Running {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {name};"))
        .collect();
    let text = format!(
        "daemon off; master_process off; pid pid; error_log error.log;
         events {{ worker_connections 512; }}
         http {{ {temporary} access_log off; {settings} }}"
    );
    folder.write("nginx.conf", text.as_bytes());
    let mut command = tool("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
    let nginx = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("nginx listens", is_ready);
    nginx
}
