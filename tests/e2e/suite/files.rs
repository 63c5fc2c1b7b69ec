//! Invalid suites: every error is reported with its line, and nothing is started.

use super::{FLATOUT, Given, Ran, STEP};
use crate::e2e::harness::flatout;

#[test]
fn all_errors_of_all_files_are_reported_together_with_their_lines() {
    let given = Given::of(&[FLATOUT, STEP, r#"stpe "x" { }"#, r#"step "y" { servers "nginks"; pth "/" }"#]);
    let file = given.folder.path().join("a.kdl");
    let missing = given.folder.path().join("none.kdl");
    for verb in ["run", "check", "list"] {
        let ran = Ran::of(&flatout().args(["suite", verb]).arg(&file).arg(&missing).output().unwrap());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        for words in [
            "unknown setting `stpe`",
            "did you mean `step`?",
            "there is no server `nginks`",
            "unknown setting `pth`",
            "did you mean `path`?",
            "a.kdl:1",
            "cannot read",
            "none.kdl",
        ] {
            assert!(ran.stderr.contains(words), "{verb}: {words}: {}", ran.stderr);
        }
    }
    assert!(!given.out().exists());
    let ran = Ran::of(&flatout().args(["suite", "check", "--json"]).arg(&file).output().unwrap());
    assert_eq!(ran.code, 2);
    assert!(ran.stdout.contains("\"C0102\""), "{}", ran.stdout);
}

#[test]
fn arguments_are_parsed_as_by_bench() {
    let cases = [
        ("\"--nope\"", "unexpected argument '--nope'"),
        ("\"-c\" \"{n}\"", "x"),
        ("\"--require\" \"p99 is good\"", "p99 is good"),
        ("\"--find-knee\" \"p99<10ms\" \"-n\" \"10\"", "--find-knee needs a duration"),
        ("\"-d\" \"10x\"", "10x"),
    ];
    for (words, said) in cases {
        let step = format!("step \"s\" {{ servers \"flatout\"; path \"/\"; bench {words}; }}");
        let given = Given::of(&[FLATOUT, "let \"n\" 5 \"x\"", &step]);
        let file = given.folder.path().join("a.kdl");
        for verb in ["check", "run"] {
            let ran = Ran::of(&flatout().args(["suite", verb]).arg(&file).output().unwrap());
            assert_eq!(ran.code, 2, "{verb} {words}: {}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains("a.kdl:") && ran.stderr.contains("step `s`"), "{words}: {}", ran.stderr);
            assert!(ran.stderr.contains(said), "{words}: {}", ran.stderr);
        }
    }
    // A figure from an earlier step may have any value.
    let later = "step \"later\" { servers \"flatout\"; path \"/\"; take \"peak\" { step \"hits\"; measure \"requests-per-s\"; }; \
                 bench \"--rate\" \"100..{peak}:100\"; }";
    let given = Given::of(&[FLATOUT, STEP, later]);
    let ran = Ran::of(&flatout().args(["suite", "check"]).arg(given.folder.path().join("a.kdl")).output().unwrap());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn steps_and_cores_that_do_not_exist_are_refused() {
    let given = Given::of(&[FLATOUT, STEP]);
    let ran = given.run(&["--only", "hats"]);
    assert_eq!((ran.code, ran.stderr.contains("no step \"hats\"; use one of: hits")), (2, true), "{}", ran.stderr);
    let ran = given.run(&["--watts", "-1"]);
    assert_eq!(ran.code, 2);
    let ran = Ran::of(&flatout().args(["suite", "check"]).arg(given.folder.path().join("a.kdl")).output().unwrap());
    assert_eq!((ran.code, ran.stdout.contains("is valid")), (0, true));
    given.write(&[FLATOUT, STEP, "cores server=8191 client=0"]);
    let ran = given.run(&[]);
    assert_eq!((ran.code, ran.stderr.contains("not allowed to use: 8191")), (2, true), "{}", ran.stderr);
}

#[test]
fn an_unrelated_folder_is_left_alone() {
    let given = Given::of(&[FLATOUT, STEP]);
    given.folder.write("out/letter.txt", b"dear");
    for arguments in [&[][..], &["--fresh"]] {
        let ran = given.run(arguments);
        assert_eq!(
            (ran.code, ran.stderr.contains("is not empty and not the result of a suite")),
            (1, true),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(std::fs::read(given.out().join("letter.txt")).unwrap(), b"dear");
}
