//! Readiness checks of a server, by a request or only by a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Timeout of one attempt.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests a path. If `path` is `None`, only connects.
///
/// # Errors
/// Returns a few words that say why the server is not ready yet.
pub fn probe(address: SocketAddr, path: Option<&str>) -> Result<(), String> {
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response".to_owned(),
        _ => error.to_string(),
    };
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT).map_err(said)?;
    let Some(path) = path else { return Ok(()) };
    let timeouts = stream.set_read_timeout(Some(ANSWER_TIMEOUT)).and(stream.set_write_timeout(Some(ANSWER_TIMEOUT)));
    timeouts.map_err(said)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(said)?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head).map_err(said)?;
    let status = std::str::from_utf8(&head[9..]).ok().and_then(|text| text.parse::<u16>().ok());
    match status {
        Some(status) if status < 400 => Ok(()),
        Some(status) => Err(format!("the response to {path} has status {status}")),
        None => Err("the process on that port does not speak HTTP".to_owned()),
    }
}

/// Connects to a Unix socket.
///
/// # Errors
/// Returns why the server is not ready yet.
pub fn probe_socket(path: &Path) -> Result<(), String> {
    UnixStream::connect(path).map(|_| ()).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::probe;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn an_answer_below_400_is_ready_and_others_say_what_came() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(address, None), Ok(()));
        let answers = ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 503 Busy\r\n\r\n", "SSH-2.0-OpenSSH\r\n"];
        let server = std::thread::spawn(move || {
            let _first = listener.accept().unwrap();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _read = stream.read(&mut [0; 500]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(probe(address, Some("/")), Ok(()));
        assert_eq!(probe(address, Some("/x")), Err("the response to /x has status 503".to_owned()));
        assert!(probe(address, Some("/")).unwrap_err().contains("does not speak HTTP"));
        server.join().unwrap();
        // Another test could listen at the address that has just become free, but nothing listens at port 1.
        assert_eq!(probe("127.0.0.1:1".parse().unwrap(), Some("/")), Err("nothing listens there".to_owned()));
    }
}
