//! Random messages, written byte by byte as a table describes them. Pure.
//!
//! Invariant: a canonical message is the only encoding of its value (no tagged field holds its default), so whoever reads
//! and writes it must give the same bytes. A loose one also states defaults; two readers must agree on what is left.

use bytes::Bytes;
use sakia_codegen::schema::{Api, Field, Fixed, Struct, Type};

use crate::Side;
use crate::random::Random;

/// Whether tagged fields may state their default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// They never do.
    Canonical,
    /// They do about every third time.
    Loose,
}

/// A random message of `api` in `version`, without header.
pub fn message(api: &Api, side: Side, version: i16, tags: Tags, random: &mut Random) -> Bytes {
    let part = match side {
        Side::Request => api.request(),
        Side::Response => api.response(),
    };
    let mut builder = Builder { api, version, tags, random };
    let mut out = Vec::new();
    builder.structure(part, &mut out);
    Bytes::from(out)
}

struct Builder<'a> {
    api: &'a Api,
    version: i16,
    tags: Tags,
    random: &'a mut Random,
}

impl Builder<'_> {
    fn compact(&self) -> bool {
        self.api.is_flexible(self.version)
    }

    fn structure(&mut self, part: &Struct, out: &mut Vec<u8>) {
        let here = part.fields.iter().filter(|field| field.versions.contains(self.version));
        let (tagged, plain): (Vec<&Field>, Vec<&Field>) = here.partition(|field| field.tag.is_some());
        for field in plain {
            if self.may_be_null(field) && self.random.one_in(3) {
                self.null(&field.kind, out);
            } else {
                self.present(field, out);
            }
        }
        if self.compact() {
            self.tagged(&tagged, out);
        }
    }

    fn may_be_null(&self, field: &Field) -> bool {
        field.nullable.is_some_and(|nullable| nullable.contains(self.version))
    }

    fn null(&self, kind: &Type, out: &mut Vec<u8>) {
        match kind {
            Type::Struct(_) => out.push(0xff),
            _ if self.compact() => out.push(0),
            Type::String => out.extend([0xff; 2]),
            _ => out.extend([0xff; 4]),
        }
    }

    fn present(&mut self, field: &Field, out: &mut Vec<u8>) {
        if self.may_be_null(field) && matches!(field.kind, Type::Struct(_)) {
            out.push(1);
        }
        self.value(&field.kind, out);
    }

    fn value(&mut self, kind: &Type, out: &mut Vec<u8>) {
        match kind {
            Type::Fixed(fixed) => self.fixed(*fixed, out),
            Type::Struct(name) => {
                let api = self.api;
                self.structure(api.part(name), out);
            }
            Type::String => {
                let len = if self.random.one_in(16) { 200 } else { self.random.below(9) };
                let text: String = (0..len).map(|_| *self.random.pick(&['a', 'Z', '-', '0', 'é', '漢'])).collect();
                self.string_length(text.len(), out);
                out.extend(text.as_bytes());
            }
            Type::Bytes => {
                let len = if self.random.one_in(16) { 300 } else { self.random.below(9) };
                self.length(len, out);
                out.extend((0..len).map(|_| self.random.byte()));
            }
            Type::List(element) => {
                let len = self.random.below(4);
                self.length(len, out);
                for _ in 0..len {
                    self.value(element, out);
                }
            }
        }
    }

    fn fixed(&mut self, fixed: Fixed, out: &mut Vec<u8>) {
        let bytes = match (fixed, self.random.below(4)) {
            (Fixed::Bool, _) => return out.push(self.random.byte() & 1),
            (_, 0) => [0; 16],
            (_, 1) => [0xff; 16],
            _ => {
                let bits = (u128::from(self.random.bits()) << 64) | u128::from(self.random.bits());
                bits.to_be_bytes()
            }
        };
        out.extend(&bytes[..fixed.size()]);
    }

    fn string_length(&self, len: usize, out: &mut Vec<u8>) {
        match self.compact() {
            true => self.length(len, out),
            false => out.extend(i16::try_from(len).expect("strings here are short").to_be_bytes()),
        }
    }

    fn length(&self, len: usize, out: &mut Vec<u8>) {
        match self.compact() {
            true => uvarint(len + 1, out),
            false => out.extend(i32::try_from(len).expect("lists here are short").to_be_bytes()),
        }
    }

    fn tagged(&mut self, fields: &[&Field], out: &mut Vec<u8>) {
        let mut chosen = Vec::new();
        for field in fields {
            let mut value = Vec::new();
            if self.tags == Tags::Loose && self.random.one_in(3) {
                self.default(field, &mut value);
            } else if self.random.one_in(2) {
                self.present(field, &mut value);
                let mut default = Vec::new();
                self.default(field, &mut default);
                if self.tags == Tags::Canonical && value == default {
                    continue;
                }
            } else {
                continue;
            }
            chosen.push((field.tag.expect("only tagged fields come here"), value));
        }
        uvarint(chosen.len(), out);
        for (tag, value) in chosen {
            uvarint(usize::try_from(tag).expect("tags are small"), out);
            uvarint(value.len(), out);
            out.extend(value);
        }
    }

    /// The default of a field, as Kafka would write it if it were not tagged.
    fn default(&self, field: &Field, out: &mut Vec<u8>) {
        match &field.kind {
            kind if self.may_be_null(field) => self.null(kind, out),
            Type::Fixed(fixed) => match field.default.as_deref() {
                Some("true") => out.push(1),
                value => {
                    let number: i64 = value.map_or(0, |value| value.parse().expect("a default is a number"));
                    let bytes = i128::from(number).to_be_bytes();
                    out.extend(&bytes[bytes.len() - fixed.size()..]);
                }
            },
            Type::Struct(name) => {
                let part = self.api.part(name);
                for field in part.fields.iter().filter(|field| field.versions.contains(self.version)) {
                    self.default(field, out);
                }
                out.push(0);
            }
            Type::String => self.string_length(0, out),
            Type::Bytes | Type::List(_) => self.length(0, out),
        }
    }
}

fn uvarint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits fit a byte") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("checked above"));
}
