//! Reads a table. Pure. The notation is in `schema`.

use crate::schema::{Api, Field, Fixed, Struct, Type, Versions};

/// One line: its number, its depth and what it says.
struct Line<'a> {
    number: usize,
    depth: usize,
    words: Vec<&'a str>,
    comment: &'a str,
}

/// Reads the text of one table.
///
/// # Errors
/// A sentence with the line of the first mistake.
pub fn parse(text: &str) -> Result<Api, String> {
    let mut comment = Vec::new();
    let mut lines = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let (code, note) = raw.split_once('#').unwrap_or((raw, ""));
        let words: Vec<&str> = code.split_whitespace().collect();
        if !words.is_empty() {
            let depth = code.len() - code.trim_start().len();
            lines.push(Line { number: index + 1, depth, words, comment: note.trim() });
        } else if lines.is_empty() && !note.is_empty() {
            comment.push(note.trim().to_owned());
        }
    }
    let (head, rest) = lines.split_first().ok_or("the table is empty")?;
    let mut api = heading(head).ok_or_else(|| at(head, "expected `api Name key versions a-b flexible c`"))?;
    api.comment = comment;
    body(&mut api, rest)?;
    check(&api)?;
    Ok(api)
}

fn at(line: &Line<'_>, what: &str) -> String {
    format!("line {}: {what}", line.number)
}

fn heading(line: &Line<'_>) -> Option<Api> {
    let ["api", name, key, "versions", versions, "flexible", flexible] = line.words[..] else { return None };
    Some(Api {
        name: name.to_owned(),
        key: key.parse().ok()?,
        comment: Vec::new(),
        versions: range(versions)?,
        flexible_from: if flexible == "never" { None } else { Some(flexible.parse().ok()?) },
        structs: Vec::new(),
    })
}

/// `3`, `3+` or `3-5`.
fn range(word: &str) -> Option<Versions> {
    if let Some(first) = word.strip_suffix('+') {
        return Some(Versions { first: first.parse().ok()?, last: i16::MAX });
    }
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(Versions { first: first.parse().ok()?, last: last.parse().ok()? })
}

fn body(api: &mut Api, lines: &[Line<'_>]) -> Result<(), String> {
    let mut at_line = 0;
    while let Some(line) = lines.get(at_line) {
        let name = match line.words[..] {
            ["request"] => format!("{}Request", api.name),
            ["response"] => format!("{}Response", api.name),
            ["struct", name] => name.to_owned(),
            _ => return Err(at(line, "expected `request`, `response` or `struct Name`")),
        };
        let comment = match line.words[0] {
            "struct" => line.comment.to_owned(),
            side => format!("The {} {side}.", api.name),
        };
        let part = Struct { name, comment, versions: api.versions, fields: Vec::new() };
        at_line = fields(api, part, lines, at_line)?;
    }
    Ok(())
}

/// Reads the fields below line `head` into `part`; returns the first line that is not below it.
fn fields(api: &mut Api, mut part: Struct, lines: &[Line<'_>], head: usize) -> Result<usize, String> {
    let slot = api.structs.len();
    api.structs.push(part.clone());
    let mut next = head + 1;
    let Some(depth) = lines.get(next).map(|line| line.depth).filter(|&depth| depth > lines[head].depth) else {
        return Ok(next);
    };
    while let Some(line) = lines.get(next).filter(|line| line.depth == depth) {
        let field = field(line, part.versions).ok_or_else(|| at(line, "not a field of versions that exist"))?;
        let inside = lines.get(next + 1).is_some_and(|below| below.depth > depth);
        next = match (inside, element(&field.kind)) {
            (true, Type::Struct(name)) => {
                let relation = if matches!(field.kind, Type::List(_)) { "Element" } else { "Value" };
                let comment = format!("{relation} of `{}::{}`.", part.name, field.name);
                let inner = Struct { name: name.clone(), comment, versions: field.versions, fields: Vec::new() };
                fields(api, inner, lines, next)?
            }
            (true, _) => return Err(at(line, "only a struct has fields inside")),
            (false, _) => next + 1,
        };
        part.fields.push(field);
    }
    if let Some(line) = lines.get(next).filter(|line| line.depth > lines[head].depth) {
        return Err(at(line, "odd indentation"));
    }
    api.structs[slot] = part;
    Ok(next)
}

fn element(kind: &Type) -> &Type {
    match kind {
        Type::List(element) => element,
        other => other,
    }
}

fn field(line: &Line<'_>, around: Versions) -> Option<Field> {
    let [name, kind, options @ ..] = &line.words[..] else { return None };
    let mut field = Field {
        name: (*name).to_owned(),
        kind: kind_of(kind)?,
        versions: around,
        nullable: None,
        tag: None,
        default: None,
        comment: line.comment.to_owned(),
    };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "null" => field.nullable = Some(range(options.next()?)?.and(around)?),
            "tag" => field.tag = Some(options.next()?.parse().ok()?),
            "default" => field.default = Some((*options.next()?).to_owned()),
            versions => field.versions = range(versions)?.and(around)?,
        }
    }
    Some(field)
}

fn kind_of(word: &str) -> Option<Type> {
    if let Some(element) = word.strip_prefix("[]") {
        return Some(Type::List(Box::new(kind_of(element)?)));
    }
    Some(match word {
        "bool" => Type::Fixed(Fixed::Bool),
        "i8" => Type::Fixed(Fixed::I8),
        "i16" => Type::Fixed(Fixed::I16),
        "u16" => Type::Fixed(Fixed::U16),
        "i32" => Type::Fixed(Fixed::I32),
        "i64" => Type::Fixed(Fixed::I64),
        "f64" => Type::Fixed(Fixed::F64),
        "uuid" => Type::Fixed(Fixed::Uuid),
        "string" => Type::String,
        "bytes" => Type::Bytes,
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => Type::Struct(name.to_owned()),
        _ => return None,
    })
}

/// What must hold of a whole table.
fn check(api: &Api) -> Result<(), String> {
    let names: Vec<&str> = api.structs.iter().map(|part| part.name.as_str()).collect();
    for (index, part) in api.structs.iter().enumerate() {
        if names[..index].contains(&part.name.as_str()) {
            return Err(format!("two structs are called {}", part.name));
        }
        let mut above = None;
        for field in &part.fields {
            if let Type::Struct(name) = element(&field.kind)
                && !names.contains(&name.as_str())
            {
                return Err(format!("{}::{}: there is no struct {name}", part.name, field.name));
            }
            if let Some(tag) = field.tag {
                if above.is_some_and(|above| tag <= above) {
                    return Err(format!("{}::{}: tags must grow", part.name, field.name));
                }
                if !api.is_flexible(field.versions.first) {
                    return Err(format!("{}::{}: tagged in a plain version", part.name, field.name));
                }
                above = Some(tag);
            }
        }
    }
    let sides = [format!("{}Request", api.name), format!("{}Response", api.name)];
    if names.len() < 2 || !sides.iter().all(|side| names.contains(&side.as_str())) {
        return Err("a table has one request and one response".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Asks.\napi Ask 7 versions 1-4 flexible 3\nrequest\n  names []Name null 2+ # which\n    \
                         text string\n    id uuid 4+\n  wait i32 3-4 tag 0 default -1\nresponse\n  code i16\n";

    #[test]
    fn a_table_becomes_structs_in_order() {
        let api = parse(TABLE).unwrap();
        assert_eq!((api.key, api.module().as_str(), api.versions.to_string().as_str()), (7, "ask", "1-4"));
        let names: Vec<&str> = api.structs.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["AskRequest", "Name", "AskResponse"]);
        let names = &api.request().fields[0];
        assert_eq!(names.nullable, Some(Versions { first: 2, last: 4 }));
        assert_eq!(names.comment, "which");
        assert_eq!(api.struct_size_min(api.part("Name"), 1), 2);
        assert_eq!(api.struct_size_min(api.part("Name"), 4), 1 + 16 + 1);
    }

    #[test]
    fn mistakes_are_refused_by_line() {
        for (from, to, error) in [
            ("flexible 3", "flexible", "line 2: expected `api Name key versions a-b flexible c`"),
            ("code i16", "code i15", "line 9: not a field of versions that exist"),
            ("uuid 4+", "uuid 5+", "line 6: not a field of versions that exist"),
            ("[]Name null", "[]string null", "line 4: only a struct has fields inside"),
            ("response", "request", "two structs are called AskRequest"),
            ("code i16", "code Code", "AskResponse::code: there is no struct Code"),
            ("3-4 tag 0", "2-4 tag 0", "AskRequest::wait: tagged in a plain version"),
        ] {
            assert_eq!(parse(&TABLE.replace(from, to)).unwrap_err(), error);
        }
    }
}
