//! A player that reads a video by ranges, with the index at the end of the file.

use super::origin::{Origin, origin_log};
use super::stage::Stage;
use crate::harness::wait_until;
use crate::tool::{run, tool};

/// A limit far below the size of the video, which is several megabytes.
const SMALL: &str = "range-fetch-max \"64KiB\"";

#[test]
fn a_second_playback_of_a_video_needs_no_origin() {
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
        // Once to the end, and once from the middle.
        run(tool("ffmpeg").args(["-v", "error", "-i", &url, "-c", "copy", "-f", "null", "-"]));
        run(tool("ffmpeg").args(["-v", "error", "-ss", "12", "-i", &url, "-t", "2", "-c", "copy", "-f", "null", "-"]));
        origin_log(&stage.folder, &origin).len()
    };
    play();
    assert!(
        origin_log(&stage.folder, &origin).iter().any(|line| line.starts_with("206 ")),
        "the player asks for ranges"
    );
    // Unread parts are stored a moment later.
    wait_until("all parts are stored", || {
        let mut curl = tool("curl");
        curl.args(["--silent", "--fail", "--output", "/dev/null", "--header", "Cache-Control: only-if-cached", &url]);
        curl.status().unwrap().success()
    });
    let before = origin_log(&stage.folder, &origin).len();
    let after = play();
    assert_eq!(after, before, "{:?}", &origin_log(&stage.folder, &origin)[before..]);
}
