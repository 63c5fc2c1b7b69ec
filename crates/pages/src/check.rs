//! Checking pages without running them, and reading them from a folder on disk.

use flatout_config::{Code, Diagnostics};
use flatout_os::root::{OpenFault, Root};
use flatout_template::{CompiledPage, Files, compile};
use mlua::Error;
use mlua::chunk::Compiler;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// A folder on disk, held open. Names cannot lead out of it, not even through symbolic links.
#[derive(Debug)]
pub struct TemplateFolder {
    folder: Root,
    path: PathBuf,
}

impl TemplateFolder {
    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let shown = if path == Path::new(".") { PathBuf::new() } else { path.to_owned() };
        Ok(Self { folder: Root::open(path)?, path: shown })
    }
}

impl Files for TemplateFolder {
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        let (file, _) = self.folder.open_file(name.as_bytes()).map_err(error_of)?;
        let mut content = Vec::new();
        File::from(file).take(bytes_max as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    fn show(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

/// Converts a fault to an error that describes the problem with the name.
pub(crate) fn error_of(fault: OpenFault) -> io::Error {
    match fault {
        OpenFault::NotFound => io::ErrorKind::NotFound.into(),
        OpenFault::Forbidden => io::ErrorKind::PermissionDenied.into(),
        OpenFault::OutsideRoot => io::Error::other("it is outside the folder"),
        OpenFault::NotAFile => io::Error::other("it is not a regular file"),
        OpenFault::NoDescriptor => io::Error::other("no file descriptor is available"),
        OpenFault::Unsettled | OpenFault::Failed => io::Error::other("it cannot be opened"),
    }
}

/// Compiles a page or a script, and checks the result with the Luau compiler.
pub fn check(name: &str, files: &dyn Files) -> Result<CompiledPage, Diagnostics> {
    let template = compile(name, files).template?;
    match Compiler::new().compile(&template.chunk) {
        Ok(_) => Ok(template),
        Err(Error::SyntaxError { message, .. }) => Err(syntax(&template, &message, files)),
        Err(error) => Err(template.lines.blame(0, Code::LuauBad, &error.to_string(), files)),
    }
}

/// Maps an error message of the Luau compiler, `12: message` or `name:12: message`, to the line in the page.
fn syntax(template: &CompiledPage, message: &str, files: &dyn Files) -> Diagnostics {
    let parse = |text: &str| {
        let (line, rest) = text.split_once(':')?;
        Some((line.parse::<u32>().ok()?, rest.trim().to_owned()))
    };
    let starts = std::iter::once(0).chain(message.match_indices(':').map(|(at, _)| at + 1));
    let found = starts.into_iter().find_map(|at| parse(&message[at..]));
    let (line, text) = found.unwrap_or_else(|| (0, message.to_owned()));
    template.lines.blame(line, Code::LuauBad, &text, files)
}

#[cfg(test)]
mod tests {
    use super::check;
    use flatout_template::MemoryFiles;

    fn fault(page: &str) -> String {
        check("page.lhtml", &MemoryFiles::new().file("page.lhtml", page)).unwrap_err().to_string()
    }

    #[test]
    fn a_syntax_error_is_told_at_the_line_of_the_page() {
        let text = fault("<p>\n<?lua\nlocal a = 1\nlocal b = = 2\n?>\n");
        assert!(text.contains("page.lhtml:4:1") && text.contains("4 | local b = = 2"), "{text}");
        let text = fault("<p>\n  <?= a b ?>\n");
        assert!(text.contains("page.lhtml:2:7"), "{text}");
    }

    #[test]
    fn what_is_right_passes() {
        let files = MemoryFiles::new()
            .file("a.luau", "return 1 +\n 2")
            .file("b.lhtml", "<?lua for i = 1, 3 do ?><?= i ?><?lua end ?>");
        assert!(check("a.luau", &files).is_ok());
        assert!(check("b.lhtml", &files).is_ok());
        assert!(check("c.luau", &files).is_err());
    }
}
