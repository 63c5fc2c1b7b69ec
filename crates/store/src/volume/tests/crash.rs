//! Tests that a volume killed at any moment returns either the right content or none.

use super::*;
use std::io::{Read, Write};

/// The child of the test below: fills, replaces and purges until it is killed.
#[test]
fn crash_child() {
    let Some(folder) = std::env::var_os("FLATOUT_STORE_CRASH") else { return };
    let store = open(StoreSettings { disks: vec![(folder.into(), 6_000_000)], ..settings(1 << 20) });
    let seed = u64::from(std::process::id());
    for number in 0..u64::MAX {
        // The parent counts these.
        std::io::stdout().write_all(b".").unwrap();
        std::io::stdout().flush().unwrap();
        let choice = bytes_of(seed ^ number, 8);
        let locator = format!("h{}/{}", choice[0] % 4, u32::from(choice[1]) * 4 + u32::from(choice[2]) % 4);
        match choice[3] % 32 {
            0 => drop(store.remove(key(&store, &locator).hash(), key(&store, &locator).as_bytes())),
            1 if choice[4] < 8 => {
                store.purge(&Purge::Host(format!("h{}", choice[0] % 4).into()), choice[5] < 128, false);
            }
            _ => {
                let len = match choice[6] % 8 {
                    0 => 65_537 + usize::from(choice[7]) * 1_000,
                    _ => usize::from(choice[7]) * 64,
                };
                let bytes = bytes_of(seed.wrapping_mul(31) ^ number, len);
                // The origin's word for what it sent.
                let note = Note {
                    text: digest(&SHA256, &[locator.as_bytes(), &bytes].concat()).as_ref().to_vec(),
                    ..tagged(&[])
                };
                let body = if len > 65_536 {
                    let Ok(mut body) = store.create_body(Some(len as u64)) else { continue };
                    if bytes.chunks(30_000).any(|part| body.write(part).is_err()) {
                        continue;
                    }
                    body.finish().unwrap()
                } else {
                    memory_body(&bytes)
                };
                store.insert(object(&store, &locator, "", note, body), 8);
                drop(fetch(&store, &format!("h{}/{}", choice[8 % 8] % 4, choice[1]), ""));
            }
        }
    }
}

#[test]
fn killed_at_any_moment_it_answers_right_or_not_at_all() {
    let place = Place::new("killed");
    let rounds = std::env::var("FLATOUT_STORE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6_u64);
    let (mut found, mut slowest) = (0, Duration::ZERO);
    for round in 0..rounds {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "volume::tests::crash::crash_child", "--nocapture"])
            .env("FLATOUT_STORE_CRASH", &place.0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // At another step in each round.
        let mut steps = child.stdout.take().unwrap();
        let mut done = 0;
        while done < 2_000 + (round * 7_919) % 5_000 {
            let mut piece = [0; 256];
            let count = steps.read(&mut piece).unwrap();
            assert!(count > 0, "it has ended");
            done += (0..count).filter(|at| piece[*at] == b'.').count() as u64;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        let store = open(place.settings(1 << 22, 6_000_000));
        slowest = slowest.max(begun.elapsed());
        assert_eq!(store.stats().volumes[0].state, VolumeState::Good);
        for host in 0..4 {
            for path in 0..1_024 {
                let locator = format!("h{host}/{path}");
                let Some(object) = fetch(&store, &locator, "") else { continue };
                let bytes = content(object.body());
                let sum = digest(&SHA256, &[locator.as_bytes(), &bytes].concat());
                assert_eq!(object.meta().text, sum.as_ref(), "{locator} in round {round}");
                found += 1;
            }
        }
        wait_until_loaded(&store);
        assert_eq!(store.stats().volumes[0].errors, 0);
    }
    println!("{found} bodies were read after {rounds} kills; the slowest opening took {slowest:?}");
    assert!(found > rounds * 50, "{found}");
}
