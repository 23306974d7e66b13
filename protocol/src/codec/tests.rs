//! Edges of the encodings, by hand-written bytes.

use bytes::Bytes;

use super::*;

fn compact(frame: &Bytes) -> Reader<'_> {
    let mut r = Reader::new(frame);
    r.set_form(Form::Compact);
    r
}

#[test]
fn uvarint_ends_at_32_bits() {
    let max = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(Reader::new(&max).uvarint(), Ok(u32::MAX));
    let above = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x1f]);
    assert_eq!(Reader::new(&above).uvarint(), Err(WireError::VarintTooLong));
    let six = Bytes::from_static(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]);
    assert_eq!(Reader::new(&six).uvarint(), Err(WireError::VarintTooLong));
    let cut = Bytes::from_static(&[0x80]);
    assert_eq!(Reader::new(&cut).uvarint(), Err(WireError::Short));
}

#[test]
fn signed_varints_come_back() {
    for value in [0, 1, -1, 63, -64, 64, i32::MAX, i32::MIN] {
        let mut w = Writer::new();
        w.varint(value);
        w.varlong(i64::from(value));
        w.varlong(i64::from(value) << 31);
        let frame = w.into_bytes();
        let mut r = Reader::new(&frame);
        assert_eq!(r.varint(), Ok(value));
        assert_eq!(r.varlong(), Ok(i64::from(value)));
        assert_eq!(r.varlong(), Ok(i64::from(value) << 31));
        assert_eq!(r.end(), Ok(()));
    }
    for value in [i64::MIN, i64::MAX] {
        let mut w = Writer::new();
        w.varlong(value);
        assert_eq!(Reader::new(&w.into_bytes()).varlong(), Ok(value));
    }
    let above = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]);
    assert_eq!(Reader::new(&above).varlong(), Err(WireError::VarintTooLong));
}

#[test]
fn null_and_empty_differ() {
    let plain = Bytes::from_static(&[0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let mut r = Reader::new(&plain);
    assert_eq!(r.nullable_str(), Ok(None));
    assert_eq!(r.nullable_str(), Ok(Some("")));
    assert_eq!(r.nullable_bytes(), Ok(None));
    assert_eq!(r.nullable_array::<i32>(0), Ok(Some(vec![])));
    let short = Bytes::from_static(&[0, 1, 0, 1]);
    let mut r = compact(&short);
    assert_eq!(r.nullable_str(), Ok(None));
    assert_eq!(r.nullable_str(), Ok(Some("")));
    assert_eq!(r.array::<i32>(0), Err(WireError::Null));
    assert_eq!(r.array::<i32>(0), Ok(vec![]));
}

#[test]
fn lengths_beyond_the_frame_are_refused_before_allocating() {
    let huge = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(Reader::new(&huge).array::<i64>(0), Err(WireError::CountAboveFrame(0x7fff_ffff)));
    assert_eq!(Reader::new(&huge).bytes(), Err(WireError::Short));
    let negative = Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(Reader::new(&negative).bytes(), Err(WireError::NegativeLength(-2)));
    let three = Bytes::from_static(&[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Reader::new(&three).array::<i32>(0), Err(WireError::CountAboveFrame(3)));
    assert_eq!(Reader::new(&three).array::<i16>(0), Ok(vec![0, 0, 0]));
}

#[test]
fn a_string_ends_at_32767_bytes() {
    let longest = "x".repeat(STRING_BYTES_MAX);
    for form in [Form::Plain, Form::Compact] {
        let mut w = Writer::new();
        w.set_form(form);
        w.string(&longest).unwrap();
        assert_eq!(w.string(&format!("{longest}x")), Err(WireError::StringTooLong(32_768)));
        let frame = w.into_bytes();
        let mut r = Reader::new(&frame);
        r.set_form(form);
        assert_eq!(r.str(), Ok(longest.as_str()));
    }
    let mut w = Writer::new();
    w.uvarint(32_769);
    w.raw(&[b'x'; 32_768]);
    assert_eq!(compact(&w.into_bytes()).str(), Err(WireError::StringTooLong(32_768)));
}

#[test]
fn tagged_fields_come_once_in_order_and_fill_their_size() {
    let read = |bytes: &'static [u8]| {
        let frame = Bytes::from_static(bytes);
        let mut seen = vec![];
        let mut r = compact(&frame);
        r.tagged(|tag, r| {
            if tag == 9 {
                return Ok(Tagged::Unknown);
            }
            seen.push((tag, r.i8()?));
            Ok(Tagged::Known)
        })?;
        r.end()?;
        Ok(seen)
    };
    assert_eq!(read(&[3, 1, 1, 7, 4, 1, 8, 9, 2, 0, 0]), Ok(vec![(1, 7), (4, 8)]));
    assert_eq!(read(&[2, 1, 1, 7, 1, 1, 7]), Err(WireError::TagOrder(1)));
    assert_eq!(read(&[2, 2, 1, 7, 1, 1, 7]), Err(WireError::TagOrder(1)));
    assert_eq!(read(&[1, 1, 2, 7, 7]), Err(WireError::TagSize(1)));
    assert_eq!(read(&[1, 1, 0]), Err(WireError::Short));
    assert_eq!(read(&[1, 9, 5, 0]), Err(WireError::Short));
    assert_eq!(read(&[1, 9, 1, 0, 0]), Err(WireError::Trailing(1)));
}

#[test]
fn byte_fields_are_slices_of_the_frame() {
    let frame = Bytes::from(vec![0, 0, 0, 2, 5, 6]);
    let field = Reader::new(&frame).bytes().unwrap();
    assert_eq!(field.as_ptr(), frame[4..].as_ptr());
    assert_eq!(decode_exact::<Bytes>(&frame, 0), Ok(field));
    assert_eq!(decode_exact::<i32>(&frame, 0), Err(WireError::Trailing(2)));
}
