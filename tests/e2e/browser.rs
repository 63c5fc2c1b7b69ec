//! Headless Chromium: the DOM that it builds from a page, and screenshots.

use super::harness::{Folder, Server};
use super::tls::Certificate;
use super::tool::{chromium, run, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A page that embeds a report, and records how much the report fetched and its DOM.
const LOOKER: &str =
    "<!DOCTYPE html><title>looker</title><pre id=found></pre><iframe src=/report.html></iframe><script>
onload = () => { const page = frames[0];
  found.innerHTML = 'fetched ' + page.performance.getEntriesByType('resource').length + ' for ' +
    page.document.documentElement.outerHTML };
</script>";

/// Chromium with its own profile.
#[derive(Debug)]
pub(crate) struct Browser {
    profile: Folder,
    arguments: Vec<String>,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let profile = Folder::new();
        let arguments = vec![format!("--user-data-dir={}", profile.path().display())];
        Self { profile, arguments }
    }

    /// Trusts this certificate by its public key. Other certificates must be signed by an authority of the system.
    pub(crate) fn trusting(mut self, certificate: &Certificate) -> Self {
        let file = |name: &str| self.profile.path().join(name).to_str().unwrap().to_owned();
        let (public, der, digest) = (file("public.pem"), file("public.der"), file("digest"));
        let openssl = |arguments: &[&str]| run(tool("openssl").args(arguments));
        openssl(&["x509", "-in", &certificate.chain, "-pubkey", "-noout", "-out", &public]);
        openssl(&["pkey", "-pubin", "-in", &public, "-outform", "DER", "-out", &der]);
        openssl(&["dgst", "-sha256", "-binary", "-out", &digest, &der]);
        let pin = openssl(&["base64", "-A", "-in", &digest]);
        self.arguments.push(format!("--ignore-certificate-errors-spki-list={}", pin.trim()));
        self
    }

    pub(crate) fn with(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    fn command(&self) -> Command {
        let mut browser = chromium();
        if !self.arguments.iter().any(|argument| argument == "--enable-quic") {
            browser.arg("--disable-quic");
        }
        browser
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(&self.arguments)
            .stderr(Stdio::null());
        browser
    }

    /// The page's DOM after it has loaded and its scripts have run. Virtual time stands still for the page while
    /// something loads.
    pub(crate) fn dom(&self, url: &str) -> String {
        run(self.command().args(["--virtual-time-budget=30000", "--dump-dom", url]))
    }

    /// Like [`dom`](Self::dom), without virtual time, which QUIC's timers do not tolerate.
    pub(crate) fn dom_at_once(&self, url: &str) -> String {
        run(self.command().args(["--dump-dom", url]))
    }

    /// Starts the browser with the page open. The browser runs until it is killed.
    pub(crate) fn open(&self, url: &str) -> Child {
        self.command().args(["--remote-debugging-port=0", url]).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Takes two pictures that together show the page in both themes, and on a wide screen and a phone.
    pub(crate) fn draw(url: &str, name: &str, wide: (u32, u32), phone: (u32, u32)) {
        Self::new().screenshot(url, &format!("{name}-light"), wide);
        Self::new().with("--force-dark-mode").screenshot(url, &format!("{name}-dark-phone"), phone);
    }

    /// Returns the DOM of `report.html` in the folder of `pages`, which must load nothing else.
    pub(crate) fn report_dom(folder: &Folder, pages: &Server) -> String {
        folder.write("look.html", LOOKER.as_bytes());
        let dom = Self::new().dom(&pages.url("/look.html"));
        assert!(dom.contains("fetched 0 for "), "{dom}");
        dom
    }

    /// Saves a screenshot of the page in `target/e2e-artefacts`, with this width and height.
    ///
    /// # Panics
    /// If the screenshot has a different size, or is blank, which means smaller than 6 KiB.
    pub(crate) fn screenshot(&self, url: &str, name: &str, (width, height): (u32, u32)) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/e2e-artefacts");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{name}.png"));
        let _ = fs::remove_file(&file);
        run(self
            .command()
            .args([format!("--screenshot={}", file.display()), format!("--window-size={width},{height}")])
            .args(["--hide-scrollbars", "--virtual-time-budget=5000", url]));
        let png = fs::read(&file).unwrap();
        // The signature, then IHDR with width and height (PNG §11.2.1).
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n", "{name}");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        assert_eq!((number(16), number(20)), (width, height), "{name}");
        assert!(png.len() > 8 * 1024, "{name}: {} bytes are a blank page", png.len());
        file
    }
}
