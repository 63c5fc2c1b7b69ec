//! Check that the data of active pages is not in a folder that a `files` step serves, by comparison of canonical paths.

use flatout_config::model::{Config, Handler, Place, StepKind, is_given_out};
use std::path::{Path, PathBuf};

/// Returns a problem for each file with data of active pages that is below a served folder: the place of the step, a
/// description, and the suggested remedy.
pub(super) fn exposed(config: &Config) -> Vec<(Place, String, String)> {
    let (mut roots, mut pages) = (Vec::new(), Vec::new());
    for step in config.steps() {
        match &step.kind {
            StepKind::Handler(Handler::Files(files)) => roots.push((whole(&files.root), files)),
            StepKind::Handler(Handler::Pages(found) | Handler::Page(found)) => {
                pages.push((&step.place, &found.settings));
            }
            _ => {}
        }
    }
    if pages.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (place, settings) in pages {
        let database = settings.database.as_ref();
        let kept = [
            ("the database", database.map(|database| &database.path)),
            ("the migrations", database.and_then(|database| database.migrations.as_ref())),
            ("the secret", settings.secret.as_ref()),
        ];
        for (what, path) in kept {
            let Some(path) = path else { continue };
            let name = whole(path);
            if let Some((_, files)) = roots.iter().find(|(root, files)| is_given_out(&name, root, files.hidden)) {
                found.push((
                    place.clone(),
                    format!(
                        "visitors could download {what} `{}`, because the folder `{}` is served",
                        path.display(),
                        files.root.display()
                    ),
                    "move it out of the folder, or into a subfolder whose name begins with a dot".to_owned(),
                ));
            }
        }
    }
    found
}

/// Returns the canonical path of `path`. If it does not exist yet, uses the canonical path of its closest existing
/// ancestor.
fn whole(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|there| Some((there, there.canonicalize().ok()?)));
    let Some((there, mut name)) = there else { return path };
    // Joining an empty path would add a slash.
    if let Ok(rest) = path.strip_prefix(there)
        && !rest.as_os_str().is_empty()
    {
        name.push(rest);
    }
    name
}
