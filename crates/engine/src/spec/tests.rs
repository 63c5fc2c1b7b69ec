use super::compile::split_rendered;
use super::{Sources, Spec};
use crate::engine::tests::{
    Temporary, compile, config, files, handler, path, redirect, respond, route, set, site, step, text,
};
use flatout_config::model::*;
use flatout_http::lines::FieldOpKind;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn faults(block: Block) -> Vec<String> {
    let errors = Spec::compile(&config(vec![site(&["*"], block)]), &Sources::default()).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

fn fault(step: Step) -> String {
    let faults = faults(vec![step]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].clone()
}

#[test]
fn every_fault_is_told_at_once_with_its_place() {
    let folder = Temporary::new("spec", &[("file", "x")]);
    let gone = folder.path().join("gone");
    let place = |line| Place { file: "a.kdl".into(), line, column: 3 };
    let at = |line, step: Step| Step { place: place(line), ..step };
    let found = faults(vec![
        at(7, files(&gone)),
        at(8, files(&folder.path().join("file"))),
        route(vec![path(&["/x"])], vec![at(9, set("Content-Length", "1")), at(10, set("X", "a\r\nb"))]),
        at(11, redirect(302, text("{rest}"))),
        at(12, step(StepKind::BasicAuth(BasicAuth { realm: "r".into(), users: vec![("a".into(), "plain".into())] }))),
        at(0, redirect(302, Text::default())),
    ]);
    for (fault, parts) in found.iter().zip([
        ["a.kdl:7:3: the folder", "it does not exist; create the folder, or correct its name"],
        ["a.kdl:8:3: ", "is not a folder; specify the folder"],
        ["a.kdl:9:3: `Content-Length`", "remove it"],
        ["a.kdl:10:3: `X: a", "a value one line"],
        ["a.kdl:11:3: this is an open redirect", "begin the target with a slash"],
        ["a.kdl:12:3: the hash for `a`", "flatout passwd"],
        ["the command line: the redirect has no target", "add the target"],
    ]) {
        assert!(fault.starts_with(parts[0]) && fault.contains(parts[1]), "{fault}");
    }
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn pages_must_be_readable_and_beneath_their_folder() {
    let folder = Temporary::new("spec-pages", &[("pages/a.html", "a"), ("secret", "s")]);
    let page = |name: &str| {
        let file = folder.path().join(name);
        step(StepKind::ErrorPage(ErrorPage { statuses: vec![404], file }))
    };
    std::os::unix::fs::symlink("../secret", folder.path().join("pages/out.html")).unwrap();
    fs::set_permissions(folder.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(fault(page("pages/none.html")).contains("no file has this name; use a file that this user can read"));
    assert!(fault(page("pages/out.html")).contains("points outside the served folder"));
    assert!(fault(page("nowhere/a.html")).contains("the folder"));
    let spec = compile(&config(vec![site(&["*"], vec![page("pages/a.html"), files(folder.path())])]));
    let folders: Vec<&Path> = spec.folders().collect();
    assert_eq!(folders, [folder.path().join("pages").as_path(), folder.path()]);
    assert_eq!(spec.watched().count(), 0);
}

#[test]
fn data_of_pages_is_not_served_under_another_name() {
    let folder = Temporary::new("spec-private", &[("www/a", "a"), ("site/index.lhtml", "x"), ("keys/b", "b")]);
    let (www, keys) = (folder.path().join("www"), folder.path().join("keys"));
    std::os::unix::fs::symlink(&www, folder.path().join("link")).unwrap();
    let pages = |secret: &str| {
        let settings = PageSettings { secret: Some(folder.path().join(secret)), ..PageSettings::default() };
        handler(Handler::Pages(Box::new(Pages { path: folder.path().join("site"), settings })))
    };
    for secret in ["www/secret", "link/secret", "keys/../www/new/secret", "link/new/folder/secret"] {
        let found = faults(vec![pages(secret), files(&www)]);
        assert!(found.len() == 1 && found[0].contains("visitors could download the secret"), "{secret}: {found:?}");
    }
    assert_eq!(faults(vec![pages("www/secret"), files(&folder.path().join("link"))]).len(), 1);
    let other = config(vec![site(&["a"], vec![pages("keys/secret")]), site(&["b"], vec![files(&keys)])]);
    assert_eq!(Spec::compile(&other, &Sources::default()).unwrap_err().len(), 1);
    for secret in ["keys/secret", "www/.keys/secret", "link/../keys/secret", "www2/secret"] {
        compile(&config(vec![site(&["*"], vec![pages(secret), files(&www)])]));
    }
}

#[test]
fn what_is_watched_is_known() {
    let folder = Temporary::new("spec-watch", &[("a", "A")]);
    let watching = Site { watch: true, ..site(&["a"], vec![files(folder.path())]) };
    let spec = compile(&config(vec![site(&["b"], vec![files(folder.path())]), watching]));
    let watched: Vec<&Path> = spec.watched().map(|(path, _)| path).collect();
    assert_eq!(watched, [folder.path()]);
    assert_eq!((spec.files.len(), spec.files[0].epoch.is_none(), spec.files[1].epoch.is_some()), (2, true, true));
}

#[test]
fn one_host_has_one_site() {
    let sites =
        vec![site(&["a", "b"], vec![]), site(&["B"], vec![]), Site { listeners: vec![], ..site(&["a"], vec![]) }];
    let errors = Spec::compile(&config(sites), &Sources::default()).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].what.starts_with("`B` already has a site"), "{errors:?}");
}

#[test]
fn settings_that_open_a_site_to_everybody_are_refused() {
    let cors = Cors { origins: vec!["*".into()], credentials: true, ..Cors::default() };
    assert!(fault(step(StepKind::Cors(cors))).contains("any web site"));
    let deep = (0..40).fold(vec![respond(200, "x")], |block, _| vec![route(Vec::new(), block)]);
    assert!(faults(deep).iter().any(|fault| fault.contains("nested too deeply")));
    let respond = Respond { status: 200, body: String::new(), content_type: "a\nb".into() };
    assert!(fault(handler(Handler::Respond(respond))).contains("the type"));
}

#[test]
fn a_configuration_is_shared_by_threads() {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Spec>();
}

#[test]
fn a_folder_is_replaced_once_its_path_names_another() {
    let folder = Temporary::new("spec-replaced", &[("one/a", "1"), ("two/a", "2")]);
    let (link, next) = (folder.path().join("link"), folder.path().join("next"));
    let switch = |target: &str| {
        std::os::unix::fs::symlink(target, &next).unwrap();
        fs::rename(&next, &link).unwrap();
    };
    switch("one");
    let opened = |spec: &Spec| spec.opened_folders().into_iter().next().unwrap();
    let spec = compile(&config(vec![site(&["*"], vec![files(&link)])]));
    let one = opened(&spec);
    assert_eq!((one.path(), one.replacement().is_some()), (link.as_path(), false));
    // The same folder under another name, nothing, and a file.
    fs::rename(folder.path().join("one"), folder.path().join("first")).unwrap();
    assert!(one.replacement().is_none());
    switch("first");
    assert!(one.replacement().is_none());
    switch("two/a");
    assert!(one.replacement().is_none());
    switch("two");
    assert!(one.replacement().is_some());
    // A new configuration opens the new folder in a step of its own, and shares nothing with the old one.
    let site = config(vec![site(&["*"], vec![files(&link)])]);
    let next = Spec::compile(&site, &Sources { previous: Some(&spec), ..Sources::default() }).unwrap();
    assert!(opened(&next).replacement().is_none() && next.files[0].id != spec.files[0].id);
}

#[test]
fn a_replaced_folder_is_followed_to_one_of_the_same_owner_or_of_root() {
    let of = |owner| super::OpenedFolder { path: "/srv/www".into(), identity: (1, 2), owner };
    for (before, after, may) in
        [(1000, 1000, true), (1000, 0, true), (0, 0, true), (1000, 1001, false), (0, 1000, false)]
    {
        assert_eq!(of(before).describe_foreign(&of(after)).is_none(), may, "{before} {after}");
    }
    let folder = Temporary::new("spec-owner", &[("a", "A")]);
    let spec = compile(&config(vec![site(&["*"], vec![files(folder.path())])]));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder.path()).unwrap());
    assert_eq!(spec.opened_folders()[0].owner, owner);
}

#[test]
fn steps_that_are_the_same_share_what_is_cached() {
    let folder = Temporary::new("spec-shared", &[("a", "A")]);
    let sites = (0..100).map(|n| site(&[&format!("s{n}.example")], vec![files(folder.path())])).collect();
    let spec = compile(&config(sites));
    assert_eq!((spec.files.len(), spec.folders.len()), (1, 1));
}

#[test]
fn variables_are_rendered_whatever_the_operation() {
    for kind in FieldOpKind::ALL.into_iter().filter(|kind| kind.has_value) {
        let operations = vec![
            FieldOp::new(kind, "X".to_owned(), "{path}".to_owned()),
            FieldOp::set("Y".to_owned(), "{path}".to_owned()),
            FieldOp::set("Y".to_owned(), "fixed".to_owned()),
        ];
        let (fixed, rendered) = split_rendered(operations);
        let values: Vec<_> = fixed.iter().filter_map(FieldOp::value).collect();
        let names: Vec<_> = rendered.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((values, names), (vec!["fixed"], vec!["X"]), "{kind:?}");
    }
}

/// Compiles `text` and returns the realms of its `proxy` steps under its first `cache` step.
fn realms(text: &str, previous: Option<&Spec>) -> (Spec, Vec<String>) {
    let config = flatout_config::load_text(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let spec = Spec::compile(&config, &Sources { previous, ..Sources::default() }).unwrap();
    let realms = spec.proxies.iter().map(|proxy| proxy.realm_with(&spec.cache_steps[0])).collect();
    (spec, realms)
}

#[test]
fn sites_with_the_same_host_on_other_listeners_share_nothing() {
    for host in ["", "\"a.example\""] {
        let site = |port: u16, origin: u16| {
            format!("site {host} {{\n listen \"127.0.0.1:{port}\"\n cache\n proxy \"http://127.0.0.1:{origin}\"\n}}\n")
        };
        for origin in [1, 2] {
            let (spec, found) = realms(&(site(8001, 1) + &site(8002, origin)), None);
            assert_ne!(found[0], found[1], "the origin {origin}");
            let names: Vec<&str> = spec.proxies.iter().map(|proxy| proxy.name()).collect();
            assert_ne!(names[0], names[1], "a metric has both");
            // What one of them has stored is not found when it is gone.
            let (_, alone) = realms(&site(8002, origin), Some(&spec));
            assert!(!found.contains(&alone[0]), "{found:?} {alone:?}");
        }
    }
}

#[test]
fn a_reload_moves_no_stored_response_to_another_proxy() {
    let site = |inside: &str, origins: &str| {
        format!("site \"a.example\" {{\n listen \"127.0.0.1:8001\"\n cache\n {inside}\n proxy {origins}\n}}\n")
    };
    let staff = r#"route header="X-Staff: yes" {
        proxy "http://127.0.0.1:1" {
            request-header {
                set "X-Group" "staff"
            }
        }
    }"#;
    let (first, found) = realms(&site(staff, "\"http://127.0.0.1:1\""), None);
    assert!(found[0] != found[1] && found[1].starts_with("a.example~"), "{found:?}");
    let (second, alone) = realms(&site("", "\"http://127.0.0.1:1\""), Some(&first));
    assert_eq!(alone, found[1..], "it keeps its own");
    let (_, pool) = realms(&site("", "\"http://127.0.0.1:1\" \"http://127.0.0.1:2\""), Some(&second));
    assert_eq!(pool, alone, "another origin of the same service");
    let (_, other) = realms(&site("", "\"http://127.0.0.1:2\""), Some(&second));
    assert!(!found.contains(&other[0]), "{found:?} {other:?}");
    let ignoring = site("", "\"http://127.0.0.1:1\"").replace(" cache\n", " cache { query { without \"user\"; }; }\n");
    let (_, ignoring) = realms(&ignoring, Some(&second));
    assert_ne!(ignoring, alone, "the key has less of the query");
}
