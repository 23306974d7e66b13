//! What a table says about one Kafka request and its response. Pure.
//!
//! One file per request, in a notation of our own; `#` starts a comment, deeper indentation means "inside":
//! ```text
//! # What the request is for (becomes the file's documentation).
//! api Metadata 3 versions 0-13 flexible 9
//! request
//!   topics []MetadataRequestTopic null 1+   # what the field means
//!     topic_id uuid 10+
//!     name string null 10+
//!   allow_auto_topic_creation bool 4+ default true
//! response
//!   ...
//! struct Shared                             # used by name on both sides
//!   ...
//! ```
//! A field is `name type [versions] [null versions] [tag number] [default value]`; versions are `3`, `3+` or `3-5`, and
//! without them the field is in every version. A tagged field is only ever tagged. Types: `bool i8 i16 u16 i32 i64 f64
//! uuid string bytes`, a struct's name, or `[]` and one of these. A nullable field is null by default.

use std::fmt;

/// Inclusive range of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// First.
    pub first: i16,
    /// Last.
    pub last: i16,
}

impl Versions {
    /// Those in both ranges.
    #[must_use]
    pub fn and(self, other: Self) -> Option<Self> {
        let both = Self { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }

    /// Whether `version` is one of them.
    #[must_use]
    pub fn contains(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.contains(other.first) && self.contains(other.last)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// A field that is a number or another fixed piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fixed {
    /// One byte, 0 or 1.
    Bool,
    /// One byte.
    I8,
    /// Two bytes.
    I16,
    /// Two bytes, unsigned.
    U16,
    /// Four bytes.
    I32,
    /// Eight bytes.
    I64,
    /// A double.
    F64,
    /// Sixteen bytes.
    Uuid,
}

impl Fixed {
    /// Bytes on the wire.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 => 4,
            Self::I64 | Self::F64 => 8,
            Self::Uuid => 16,
        }
    }
}

/// Type of a field or of a list's elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// A fixed number of bytes.
    Fixed(Fixed),
    /// UTF-8 text.
    String,
    /// A byte range.
    Bytes,
    /// A struct of the same file.
    Struct(String),
    /// A list.
    List(Box<Type>),
}

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// Kafka's name in snake case.
    pub name: String,
    /// What it holds.
    pub kind: Type,
    /// Where it exists.
    pub versions: Versions,
    /// Where it may be null; `Some` makes the Rust type an `Option`.
    pub nullable: Option<Versions>,
    /// Its number among the tagged fields of its struct.
    pub tag: Option<u32>,
    /// Its value when absent, if not zero, empty or null.
    pub default: Option<String>,
    /// What it means.
    pub comment: String,
}

/// One struct: a request, a response or a part of one.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Kafka's name.
    pub name: String,
    /// What it stands for.
    pub comment: String,
    /// The versions in which it can occur.
    pub versions: Versions,
    /// Its fields, in wire order.
    pub fields: Vec<Field>,
}

/// One request with its response.
#[derive(Clone, Debug)]
pub struct Api {
    /// Kafka's name.
    pub name: String,
    /// Kafka's number.
    pub key: i16,
    /// What the request is for.
    pub comment: Vec<String>,
    /// Versions we read and write.
    pub versions: Versions,
    /// First version with compact lengths and tagged fields.
    pub flexible_from: Option<i16>,
    /// Request, response and their parts, in order of appearance.
    pub structs: Vec<Struct>,
}

impl Api {
    /// Name of the Rust module and of the table.
    #[must_use]
    pub fn module(&self) -> String {
        let mut module = String::new();
        for c in self.name.chars() {
            if c.is_ascii_uppercase() && !module.is_empty() {
                module.push('_');
            }
            module.push(c.to_ascii_lowercase());
        }
        module
    }

    /// Whether `version` has compact lengths and tagged fields.
    #[must_use]
    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|from| version >= from)
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &Struct {
        self.part(&format!("{}Request", self.name))
    }

    /// The response.
    #[must_use]
    pub fn response(&self) -> &Struct {
        self.part(&format!("{}Response", self.name))
    }

    /// The struct called `name`.
    ///
    /// # Panics
    /// If there is none: the parser has checked every name.
    #[must_use]
    pub fn part(&self, name: &str) -> &Struct {
        self.structs.iter().find(|part| part.name == name).expect("the parser has checked every name")
    }

    /// Fewest bytes of a value of `kind` in `version`.
    #[must_use]
    pub fn size_min(&self, kind: &Type, version: i16) -> usize {
        match kind {
            Type::Fixed(fixed) => fixed.size(),
            Type::Struct(name) => self.struct_size_min(self.part(name), version),
            _ if self.is_flexible(version) => 1,
            Type::String => 2,
            Type::Bytes | Type::List(_) => 4,
        }
    }

    /// Fewest bytes of a struct in `version`.
    #[must_use]
    pub fn struct_size_min(&self, part: &Struct, version: i16) -> usize {
        let mut size = usize::from(self.is_flexible(version));
        for field in part.fields.iter().filter(|field| field.tag.is_none() && field.versions.contains(version)) {
            let null = field.nullable.is_some_and(|nullable| nullable.contains(version));
            size += match &field.kind {
                Type::Struct(_) if null => 1,
                kind => self.size_min(kind, version),
            };
        }
        size
    }
}
