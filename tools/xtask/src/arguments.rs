//! Words of the command line, taken one by one; what is left over is an error.

pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Self {
        Self(words.collect())
    }

    /// The number after `name`.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(at) = self.0.iter().position(|word| word == name) else { return Ok(None) };
        self.0.remove(at);
        if at == self.0.len() {
            return Err(format!("{name} needs a number"));
        }
        let word = self.0.remove(at);
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        number.map(Some).map_err(|_| format!("{name} {word}: must be a number"))
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() < before
    }

    /// The first word that is left.
    pub(crate) fn word(&mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// All words that are left.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.0.as_slice() {
            [] => Ok(()),
            words => Err(format!("not understood: {}", words.join(" "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Arguments {
        Arguments::new(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn each_word_is_taken_once() {
        let mut words = arguments("--seed 0x1f --trace rest");
        assert_eq!(words.number("--seed"), Ok(Some(31)));
        assert_eq!(words.number("--seed"), Ok(None));
        assert!(words.flag("--trace") && !words.flag("--trace"));
        assert!(words.finish().is_err());
        assert_eq!(words.word().as_deref(), Some("rest"));
        assert_eq!(words.finish(), Ok(()));
        assert_eq!(arguments("baseline --rounds 3").rest(), ["baseline", "--rounds", "3"]);
    }

    #[test]
    fn a_missing_number_is_an_error() {
        assert!(arguments("--seeds").number("--seeds").is_err());
        assert!(arguments("--seeds many").number("--seeds").is_err());
    }
}
