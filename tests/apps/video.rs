//! A video that a player reads by ranges, with the index at its end.

use super::origin::{Origin, origin_log};
use super::stage::Stage;
use crate::harness::wait_until;
use crate::tool::{run, tool};

/// Smaller than the video, which is of some megabytes.
const SMALL: &str = "range-fetch-max \"64KiB\"";

#[test]
fn a_video_that_was_played_once_needs_no_origin() {
    let stage = Stage::new("video");
    let root = stage.folder.path();
    stage.folder.write("files/empty", b"");
    let video = root.join("files/video.mp4");
    let mut ffmpeg = tool("ffmpeg");
    ffmpeg.args(["-v", "error", "-f", "lavfi", "-i", "testsrc=duration=20:size=640x360:rate=25"]);
    run(ffmpeg.args(["-c:v", "mpeg4", "-b:v", "3M", "-minrate", "3M", "-maxrate", "3M", "-bufsize", "1M"]).arg(&video));
    run(tool("touch").args(["--date", "30 days ago"]).arg(&video));
    let origin = Origin::nginx(&stage.folder, &format!("root {}/files;\n", root.display()));
    let server = stage.serve(&origin.url(), SMALL, "");
    let url = server.url("/video.mp4");
    let play = || {
        let size = run(tool("ffprobe").args(["-v", "error", "-show_entries", "format=duration", "-of", "csv", &url]));
        assert!(size.contains("20.0"), "{size}");
        // To its end, and from somewhere in its middle.
        run(tool("ffmpeg").args(["-v", "error", "-i", &url, "-c", "copy", "-f", "null", "-"]));
        run(tool("ffmpeg").args(["-v", "error", "-ss", "12", "-i", &url, "-t", "2", "-c", "copy", "-f", "null", "-"]));
        origin_log(&stage.folder).len()
    };
    play();
    assert!(origin_log(&stage.folder).iter().any(|line| line.starts_with("206 ")), "the player asks for ranges");
    // What it left unread is stored a moment later.
    wait_until("all parts are stored", || {
        let mut curl = tool("curl");
        curl.args(["--silent", "--fail", "--output", "/dev/null", "--header", "Cache-Control: only-if-cached", &url]);
        curl.status().unwrap().success()
    });
    let before = origin_log(&stage.folder).len();
    let after = play();
    assert_eq!(after, before, "{:?}", &origin_log(&stage.folder)[before..]);
}
