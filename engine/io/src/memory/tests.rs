use super::*;

#[test]
fn appended_bytes_are_leased_unchanged_while_the_tail_grows() {
    let arena = Arena::new(1 << 20);
    let mut writer = arena.chunk(2 * BLOCK).unwrap();
    assert_eq!(writer.append(b"first"), Some(0..5));
    let lease = writer.lease(0..5);
    assert_eq!(writer.append_parts(&[b"sec", b"ond"]), Some(5..11));
    assert_eq!(&lease[..], b"first");
    assert_eq!(&writer.lease(3..8)[..], b"stsec");
    let elsewhere = std::thread::spawn(move || lease.to_vec());
    assert_eq!(elsewhere.join().unwrap(), b"first");
}

#[test]
fn blocks_cover_the_range_and_are_padded_with_zeros_in_used_memory_too() {
    let arena = Arena::new(1 << 20);
    let mut used = arena.chunk(4 * BLOCK).unwrap();
    used.append(&[0xff; 4 * BLOCK]).unwrap();
    drop(used);
    let mut writer = arena.chunk(4 * BLOCK).unwrap();
    writer.append(&[1; BLOCK + 10]).unwrap();
    let blocks = writer.blocks(BLOCK + 2..BLOCK + 5);
    assert_eq!((blocks.start(), blocks.len()), (BLOCK, BLOCK));
    let mut expected = vec![1; 10];
    expected.resize(BLOCK, 0);
    assert_eq!(blocks.copy_now(), expected);
    writer.append(&[2; 20]).unwrap();
    expected[10..30].fill(2);
    assert_eq!(blocks.copy_now(), expected, "the last block grows under its lease");
    assert_eq!(writer.blocks(0..BLOCK + 30).len(), 2 * BLOCK);
}

#[test]
fn what_does_not_fit_is_not_appended() {
    let arena = Arena::new(1 << 20);
    let mut writer = arena.chunk(BLOCK).unwrap();
    writer.append(&[7; 4000]).unwrap();
    assert_eq!(writer.append(&[8; 97]), None);
    assert_eq!((writer.filled(), writer.remaining()), (4000, 96));
    assert_eq!(writer.append(&[8; 96]), Some(4000..4096));
    assert_eq!(writer.append(&[]), Some(4096..4096));
}

#[test]
#[should_panic(expected = "is not filled yet")]
fn bytes_above_filled_are_not_leased() {
    let arena = Arena::new(1 << 20);
    let mut writer = arena.chunk(BLOCK).unwrap();
    writer.append(b"x").unwrap();
    writer.lease(0..2);
}

#[test]
fn the_budget_counts_until_the_last_lease_is_gone() {
    let arena = Arena::new(4 * BLOCK);
    let mut writer = arena.chunk(3 * BLOCK).unwrap();
    assert_eq!(arena.in_use(), 4 * BLOCK);
    let full = arena.chunk(BLOCK).err().unwrap();
    assert_eq!(full, ArenaFull { budget: 4 * BLOCK, in_use: 4 * BLOCK, wanted: BLOCK });
    writer.append(b"kept").unwrap();
    let lease = writer.lease(0..4);
    assert!(writer.is_shared());
    drop(writer);
    assert_eq!(arena.in_use(), 4 * BLOCK);
    drop(lease);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn parts_of_all_sizes_are_aligned_apart_and_join_again() {
    let arena = Arena::new(64 << 20);
    let mut state: u64 = 7;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut kept: Vec<(ChunkWriter, u8)> = Vec::new();
    for round in 0..4000_usize {
        if next(3) > 0 {
            let size = [4, 64, 300, 700][next(4)];
            let len = BLOCK * (1 + next(size));
            if let Ok(mut writer) = arena.chunk(len) {
                let mark = u8::try_from(round % 251).unwrap();
                writer.append(&vec![mark; len]).unwrap();
                assert!(writer.blocks(0..1).address().addr().is_multiple_of(BLOCK));
                kept.push((writer, mark));
            }
        } else if !kept.is_empty() {
            let (writer, mark) = kept.swap_remove(next(kept.len()));
            assert!(writer.lease(0..writer.filled()).iter().all(|byte| *byte == mark));
        }
    }
    drop(kept);
    assert_eq!(arena.in_use(), 0);
    let state = arena.0.locked();
    assert!(state.free[..ORDERS - 1].iter().all(BTreeSet::is_empty), "all halves are joined");
    assert!(state.regions.len() <= FREE_REGIONS_MAX);
}

#[test]
fn a_read_buffer_shows_only_what_was_put() {
    let arena = Arena::new(BLOCK);
    let mut first = ReadBuffer::new(&arena, BLOCK);
    let beyond_the_budget = ReadBuffer::new(&arena, 8 * BLOCK);
    assert_eq!(beyond_the_budget.capacity(), 8 * BLOCK);
    first.put(b"abc");
    first.put(b"def");
    assert_eq!(&first.freeze()[..], b"abcdef");
    assert!(beyond_the_budget.freeze().is_empty());
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn the_last_block_can_be_taken_as_a_copy() {
    let arena = Arena::new(1 << 20);
    let mut writer = arena.chunk(2 * BLOCK).unwrap();
    writer.append(&[3; BLOCK + 1]).unwrap();
    let mut blocks = writer.blocks(0..BLOCK + 1);
    let bounce = blocks.take_last_block(&arena);
    writer.append(&[4; 5]).unwrap();
    assert_eq!(blocks.len(), BLOCK);
    assert_eq!(bounce.as_ref()[..3], [3, 0, 0]);
    assert_eq!(bounce.filled(), BLOCK);
}

#[test]
fn reads_above_the_budget_have_memory_of_their_own_small_and_large() {
    let arena = Arena::new(BLOCK);
    for len in [2 * BLOCK, MAPPED_BYTES_MIN - BLOCK, MAPPED_BYTES_MIN, 3 * MAPPED_BYTES_MIN] {
        let mut read = ReadBuffer::new(&arena, len);
        assert_eq!((read.capacity(), read.memory.address.as_ptr().addr() % BLOCK), (len, 0));
        read.put(&vec![7; len]);
        let bytes = read.freeze();
        let tail = bytes.slice(len - 1..);
        drop(bytes);
        assert_eq!((&tail[..], arena.in_use()), (&[7][..], 0));
    }
}
