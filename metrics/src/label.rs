//! Label values: where bytes chosen by a client become text in a scrape.
//!
//! Pure.
//! Invariant: a label value is valid UTF-8 and at most [`LABEL_BYTES_MAX`] bytes; the same input always gives the same
//! value. Escaping happens when the text is written (`text.rs`), never before.

use std::borrow::Cow;

/// Value of every label of the series that takes what does not fit the bound of its family.
pub const OTHER: &str = "__other__";

/// Value that stands for an absent or empty name: Prometheus itself cannot tell an empty label from none.
pub const NONE: &str = "__none__";

/// Longest label value, in bytes. A longer one is cut at the last whole character below this length; reason: a client
/// chooses its id, and each byte of it is sent again with each scrape.
pub const LABEL_BYTES_MAX: usize = 256;

/// Turns a name as it came from the wire into a label value: absent or empty is [`NONE`], bytes that are not UTF-8
/// become U+FFFD, and what is longer than [`LABEL_BYTES_MAX`] is cut.
#[must_use]
pub fn label_value(name: Option<&[u8]>) -> Cow<'_, str> {
    match name {
        None | Some([]) => Cow::Borrowed(NONE),
        // Cut first, with room for the widest character, so that a huge id is not converted as a whole.
        Some(bytes) => match String::from_utf8_lossy(&bytes[..bytes.len().min(LABEL_BYTES_MAX + 4)]) {
            Cow::Borrowed(text) => Cow::Borrowed(cut(text)),
            Cow::Owned(text) => Cow::Owned(cut(&text).to_owned()),
        },
    }
}

/// The longest beginning of `text` that is a whole number of characters and fits the bound.
pub(crate) fn cut(text: &str) -> &str {
    if text.len() <= LABEL_BYTES_MAX {
        return text;
    }
    let end = (0..=LABEL_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_empty_names_share_one_value() {
        assert_eq!(label_value(None), NONE);
        assert_eq!(label_value(Some(b"")), NONE);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(label_value(Some(&[0xff, 0xfe])), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_names_are_cut_at_a_whole_character() {
        let long = "\u{1f600}".repeat(10_000);
        let cut = label_value(Some(long.as_bytes()));
        assert_eq!(cut.len(), 256);
        assert!(long.starts_with(&*cut));
        let odd = format!("a{long}");
        assert_eq!(label_value(Some(odd.as_bytes())).len(), 253);
    }

    #[test]
    fn a_valid_name_is_never_damaged_by_the_early_cut() {
        let text = format!("{}\u{1f600}", "x".repeat(LABEL_BYTES_MAX - 1));
        assert_eq!(label_value(Some(text.as_bytes())), "x".repeat(LABEL_BYTES_MAX - 1));
    }
}
