//! Tests that purges hold on disks and over restarts, compared with a simple model.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put { host: u8, path: u8, tag: u8 },
    Purge { purge: Purge, soft: bool },
    Restart,
    Crowd,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn purges_hold_on_disks_as_in_memory(
        steps in prop::collection::vec(prop_oneof![
            6 => (0..3_u8, 0..7_u8, 0..4_u8).prop_map(|(host, path, tag)| Step::Put { host, path, tag }),
            3 => (purges(), any::<bool>()).prop_map(|(purge, soft)| Step::Purge { purge, soft }),
            1 => Just(Step::Restart),
            1 => Just(Step::Crowd),
        ], 1..40)
    ) {
        let place = Place::new("property");
        let mut store = open(StoreSettings { memory_objects_max: 5, ..place.settings(1 << 20, 1 << 24) });
        let mut model: BTreeMap<(u8, u8), (u8, Purged)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put { host, path, tag } => {
                    let note = Note { tags: vec![vec![b't', tag]], useful_until_s: u64::MAX, text: vec![] };
                    store.insert(object(&store, &locator_of(host, path), "", note, memory_body(&[tag])), 8);
                    model.insert((host, path), (tag, Purged::No));
                }
                Step::Purge { purge, soft } => {
                    let target = crate::purge::PurgeTarget::of(&purge);
                    let mut count = 0;
                    model.retain(|(host, path), (tag, purged)| {
                        let locator = locator_of(*host, *path);
                        let key = ObjectKey::new(format!("http://{locator}").as_bytes(), 7..7 + locator.len(), 0);
                        let tags = [crate::purge::tag_hash(&[b't', *tag])];
                        let is_named = target.names(&crate::purge::Subject::new(&key, &tags, 0));
                        count += u64::from(is_named);
                        if is_named {
                            *purged = Purged::Soft;
                        }
                        soft || !is_named
                    });
                    prop_assert_eq!(store.purge(&purge, soft, false).matched, count);
                }
                Step::Restart => {
                    drop(store);
                    store = open(StoreSettings { memory_objects_max: 5, ..place.settings(1 << 20, 1 << 24) });
                }
                Step::Crowd => {
                    for number in 0..10 {
                        let made = object(&store, &format!("crowd/{number}"), "", tagged(&[]), StoredBody::Empty);
                        store.insert(made.memory_only(), 8);
                        store.remove(key(&store, &format!("crowd/{number}")).hash(), format!("http://crowd/{number}").as_bytes());
                    }
                    wait_until_written(&store);
                }
            }
            for host in 0..3 {
                for path in 0..7 {
                    let found = fetch(&store, &locator_of(host, path), "");
                    let state = found.map(|found| (content(found.body())[0], store.check(&found)));
                    prop_assert_eq!(state, model.get(&(host, path)).copied());
                }
            }
        }
    }
}
