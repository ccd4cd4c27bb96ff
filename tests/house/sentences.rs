//! Counts the sentences of a document, and the words in each.
//!
//! A sentence ends at a full stop, a question mark or an exclamation mark before a blank, and at the end of its paragraph or
//! list item. A colon or a semicolon ends none. A word is what stands between blanks and has a letter or a digit. Code
//! between backticks counts as one word, and a link as its text. Left out are code blocks, tables, headings and comments.

/// The number of words of each sentence, with the sentence.
pub(crate) fn lengths(text: &str) -> Vec<(usize, String)> {
    let all = paragraphs(text).into_iter().flat_map(|paragraph| sentences(&spoken(&paragraph)));
    let counted = all.map(|sentence| {
        let words = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        (words, sentence)
    });
    counted.filter(|(words, _)| *words > 0).collect()
}

/// The median length; of two in the middle, the larger one.
pub(crate) fn median(lengths: &[(usize, String)]) -> usize {
    let mut sorted: Vec<usize> = lengths.iter().map(|(words, _)| *words).collect();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// Paragraphs and list items, each in one line.
fn paragraphs(text: &str) -> Vec<String> {
    let (mut all, mut open, mut fenced) = (Vec::new(), false, false);
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let words = line.trim();
        let is_code = !open && line.starts_with("    ");
        if fenced
            || fence
            || is_code
            || words.is_empty()
            || words.starts_with(['|', '#'])
            || words.starts_with("<!--")
        {
            open = false;
            continue;
        }
        match item(words) {
            Some(begun) => all.push(begun.to_owned()),
            None if open => all.last_mut().expect("one is open").push_str(&format!(" {words}")),
            None => all.push(words.to_owned()),
        }
        open = true;
    }
    all
}

/// What stands behind the mark of a list item.
fn item(line: &str) -> Option<&str> {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = numbered.strip_prefix(". ").filter(|_| numbered.len() < line.len());
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(numbered)
}

/// The text as it is read aloud: code as one word, links by their text, no emphasis.
fn spoken(paragraph: &str) -> String {
    let pieces = paragraph.split('`').enumerate();
    let worded: String = pieces.map(|(n, piece)| if n % 2 == 1 { "code" } else { piece }).collect();
    let mut said = String::new();
    let mut rest = worded.as_str();
    while let Some((before, link)) = rest.split_once("](") {
        said.push_str(before);
        rest = link.split_once(')').map_or("", |(_, behind)| behind);
    }
    said.push_str(rest);
    said.replace(['*', '[', ']'], "")
}

fn sentences(said: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for word in said.split_whitespace() {
        let last = all.last_mut().expect("there is one");
        last.push_str(word);
        last.push(' ');
        if word.trim_end_matches(['"', ')']).ends_with(['.', '!', '?']) {
            all.push(String::new());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_full_stops_and_with_their_paragraph() {
        let text = "# A title. With two.\n\nOne two, three: four; five. *Six* `seven eight. nine` [ten\neleven](a.b. c).\n\
                    - twelve\n  thirteen\n- fourteen?\n\n    code that runs. on\n\n| a table. | b |\n\n```sh\nmore code.\n```\n";
        let counted: Vec<usize> = lengths(text).iter().map(|(words, _)| *words).collect();
        assert_eq!(counted, [5, 4, 2, 1]);
        assert_eq!(median(&lengths(text)), 4);
    }
}
