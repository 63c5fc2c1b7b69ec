//! A software bill of materials in CycloneDX's JSON (version 1.5), from the dependency graph that cargo resolves: every
//! crate that the flatout binary contains, with its licence and the checksum of Cargo.lock.

use crate::failure::{Context as _, Failure, Outcome};
use crate::shell;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Writes it to `target/release/flatout.cdx.json`, beside the release binary, or to the file that `args` names.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let metadata = shell::output_of(shell::cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).cannot("read cargo's metadata")?;
    let lock = std::fs::read_to_string(shell::root().join("Cargo.lock")).cannot("read Cargo.lock")?;
    let target = args.first().map_or_else(|| shell::target_dir().join("release/flatout.cdx.json"), Into::into);
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder).cannot("create the folder of the bill of materials")?;
    }
    let bill = describe(&metadata, &checksums(&lock))?;
    std::fs::write(&target, format!("{bill:#}\n")).cannot("write the bill of materials")?;
    println!("{}", target.display());
    Ok(())
}

/// The checksum of each name and version in Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let entry = |block| Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?));
    lock.split("[[package]]").filter_map(entry).collect()
}

/// The bill of what `flatout` is built from, without what only its tests and build scripts need.
fn describe(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Outcome<Value> {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(metadata, "packages").into_iter().map(|package| (text(&package, "id"), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"], "nodes").into_iter().map(|node| (text(&node, "id"), node)).collect();
    let root = packages.iter().find(|(_, package)| package["name"] == "flatout" && package["source"].is_null());
    let (root, product) = root.ok_or_else(|| Failure::from("there is no package `flatout`"))?;
    let (mut found, mut open) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(id) = open.pop() {
        if !found.insert(id.clone()) {
            continue;
        }
        for dependency in list(&nodes[&id], "deps") {
            // A normal dependency has no kind.
            if list(&dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency, "pkg"));
            }
        }
    }
    let component = |package: &Value| {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let hash = checksums.get(&(name.clone(), version.clone()));
        let mut component = json!({
            "type": "library",
            "bom-ref": format!("pkg:cargo/{name}@{version}"),
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": package["license"].as_str().map(|text| json!([{ "expression": text.replace('/', " OR ") }])),
            "hashes": hash.map(|hash| json!([{ "alg": "SHA-256", "content": hash }])),
            "name": name,
            "version": version,
        });
        // The schema has no null: what is unknown is left out.
        if let Some(fields) = component.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        component
    };
    let components: Vec<Value> =
        found.iter().filter(|id| *id != root).filter_map(|id| packages.get(id)).map(component).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "flatout", "version": product["version"] } },
        "components": components,
    }))
}

#[cfg(test)]
mod tests {
    use super::{checksums, describe};
    use serde_json::json;

    #[test]
    fn a_bill_lists_what_is_linked_and_nothing_else() {
        let package = |id: &str, source| json!({ "id": id, "name": id, "version": "1.0.0", "source": source, "license": "MIT/Zlib" });
        let metadata = json!({
            "packages": [package("flatout", None), package("a", Some("r")), package("b", Some("r")), package("dev", Some("r"))],
            "resolve": { "nodes": [
                { "id": "flatout", "deps": [
                    { "pkg": "a", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "dev", "dep_kinds": [{ "kind": "dev" }] },
                ] },
                { "id": "a", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": "build" }, { "kind": null }] }] },
                { "id": "b", "deps": [] },
                { "id": "dev", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\n[[package]]\nname = \"b\"\n";
        let bill = describe(&metadata, &checksums(lock)).unwrap();
        let names: Vec<_> = bill["components"].as_array().unwrap().iter().map(|part| part["name"].clone()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "00ff");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Zlib");
        assert!(bill["components"][1].get("hashes").is_none());
        assert!(describe(&json!({}), &checksums("")).is_err());
    }
}
