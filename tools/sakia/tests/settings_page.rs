//! `docs/SETTINGS.md` says what the code says.

use std::path::Path;

#[test]
fn the_page_of_settings_is_what_the_tables_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SETTINGS.md");
    let text = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(text == sakia_engine::settings::markdown(), "{} differs: run `cargo xtask docs`", page.display());
}
