//! XML: the children of the element `uwsgi`, each an option with its text as the value. One without text is 1. `<app
//! mountpoint="/x"><script>y</script></app>` is a mount, as in uWSGI.

use roxmltree::{Document, Node, ParsingOptions};

use super::section::{Malformed, RawPair, Section, whole_text};

/// Most elements of a document, beyond any real configuration.
const MAX_NODES: u32 = 100_000;

/// Returns the pairs of the element `uwsgi`. `id` selects one of several, and skips children with other ids.
///
/// # Errors
/// The text is not XML.
pub fn parse(text: &[u8], id: Option<&str>) -> Result<Section, Malformed> {
    let text = whole_text(text)?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|error| Malformed { line: error.pos().row, message: format!("this is not XML: {error}") })?;
    let root = document.root_element();
    let other_id = |node: &Node<'_, '_>| matches!((id, node.attribute("id")), (Some(wanted), Some(own)) if wanted != own);
    let element = match root.tag_name().name() {
        "uwsgi" => Some(root),
        _ => root.children().find(|node| node.is_element() && node.tag_name().name() == "uwsgi" && !other_id(node)),
    };
    let Some(element) = element else {
        return Ok(Section { others: vec![root.tag_name().name().to_owned()], ..Section::default() });
    };
    let mut made = Section { found: true, ..Section::default() };
    for node in element.children().filter(|node| node.is_element() && !other_id(node)) {
        let line = document.text_pos_at(node.range().start).row;
        let name = node.tag_name().name();
        let mut add = |key: &str, value: &str| made.pairs.push(RawPair { key: key.to_owned(), value: value.to_owned(), line });
        match (name, node.first_child()) {
            ("app", None) => add("app", ""),
            ("app", Some(_)) => {
                // uWSGI does not see an inner element without blanks around it.
                if let Some(value) = mount(&node) {
                    add("mount", &value);
                    add("app", "");
                }
            }
            (_, None) => add(name, "1"),
            (_, Some(_)) => match content(&node) {
                Some(text) => add(name, text),
                None => return Err(Malformed { line, message: format!("`{name}` holds other elements instead of a text") }),
            },
        }
    }
    Ok(made)
}

/// The text at the start of an element, if any.
fn content<'a>(node: &Node<'a, '_>) -> Option<&'a str> {
    node.first_child().filter(Node::is_text).and_then(|child| child.text())
}

/// The value of `mount` for an `app` element: its text, or that of its first child element.
fn mount(node: &Node<'_, '_>) -> Option<String> {
    let own = content(node)?;
    let what = match node.first_element_child() {
        Some(child) => content(&child)?,
        None => own,
    };
    Some(match (node.attribute("mountpoint"), node.attribute("domain")) {
        (Some(path), _) => format!("{path}={what}"),
        (None, Some(domain)) => format!("{domain}|={what}"),
        (None, None) => what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str, id: Option<&str>) -> Vec<(String, String, u32)> {
        parse(text.as_bytes(), id).expect("it is XML").pairs.into_iter().map(|raw| (raw.key, raw.value, raw.line)).collect()
    }

    fn owned(pairs: &[(&str, &str, u32)]) -> Vec<(String, String, u32)> {
        pairs.iter().map(|(key, value, line)| ((*key).to_owned(), (*value).to_owned(), *line)).collect()
    }

    #[test]
    fn test_xml_elements_become_pairs() {
        let text = "<?xml version=\"1.0\"?>\n<!-- c -->\n\
            <uwsgi>\n <http>:8080</http><master/>\n <env>A=&lt;1&gt;</env>\n <!-- no -->\n <app mountpoint=\"/x\">\n  \
            <script>shop</script>\n </app>\n</uwsgi>\n";
        assert_eq!(
            pairs(text, None),
            owned(&[("http", ":8080", 4), ("master", "1", 4), ("env", "A=<1>", 5), ("mount", "/x=shop", 7), ("app", "", 7)])
        );
    }

    #[test]
    fn test_xml_ids_choose_elements() {
        let text = "<servers><uwsgi id=\"a\"><http>1</http></uwsgi><uwsgi id=\"b\"><http>2</http><http \
            id=\"a\">3</http></uwsgi></servers>";
        assert_eq!(pairs(text, Some("b")), owned(&[("http", "2", 1)]));
        assert_eq!(pairs(text, None), owned(&[("http", "1", 1)]));
    }

    #[test]
    fn test_invalid_xml_has_a_line_and_entities_do_not_explode() {
        for (text, line) in [
            ("<uwsgi>\n<http>\n</uwsgi>", 3),
            ("", 1),
            ("<uwsgi>\n<a><b/></a></uwsgi>", 2),
            ("<!DOCTYPE x [<!ENTITY a \"b\">]><uwsgi>&a;</uwsgi>", 1),
        ] {
            assert_eq!(parse(text.as_bytes(), None).expect_err(text).line, line, "{text}");
        }
        let deep = "<uwsgi>".to_owned() + &"<a>".repeat(90_000);
        assert!(parse(deep.as_bytes(), None).is_err());
        assert!(!parse(b"<other/>", None).expect("it is XML").found);
    }
}
