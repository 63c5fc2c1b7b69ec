//! Checks of pages without running them.

use crate::template::{CompiledPage, Files, compile};
use flatout_config::{Code, Diagnostics};
use mlua::Error;
use mlua::chunk::Compiler;

/// Compiles a page or a script, and checks the result with Luau's compiler.
pub fn check(name: &str, files: &dyn Files) -> Result<CompiledPage, Diagnostics> {
    let template = compile(name, files).template?;
    match Compiler::new().compile(&template.chunk) {
        Ok(_) => Ok(template),
        Err(Error::SyntaxError { message, .. }) => Err(syntax(&template, &message, files)),
        Err(error) => Err(template.lines.blame(0, Code::LuauBad, &error.to_string(), files)),
    }
}

/// A message of Luau's compiler, `12: message` or `name:12: message`, mapped to the page's line.
pub fn syntax(template: &CompiledPage, message: &str, files: &dyn Files) -> Diagnostics {
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
    use crate::template::MemoryFiles;

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
