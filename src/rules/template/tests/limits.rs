//! Limits of expansions, errors of parsing, and the property that no text panics.

use proptest::prelude::*;

use super::*;

fn parse_error(text: &str) -> String {
    check(text).expect_err(text).to_string()
}

#[test]
fn errors_of_parsing_have_line_column_and_reason() {
    for (text, expected) in [
        ("{{", "line 1, column 3: unclosed action"),
        ("a\n  {{ foo }}", "line 2, column 6: function \"foo\" not defined"),
        ("{{ $x }}", "line 1, column 4: undefined variable \"$x\""),
        ("{{ if true }}x", "line 1, column 4: unexpected EOF: {{if}} has no {{end}}"),
        ("{{ end }}", "line 1, column 4: unexpected {{end}}"),
        ("é{{ else }}", "line 1, column 5: unexpected {{else}}"),
        ("{{ if }}x{{ end }}", "line 1, column 7: missing value for if"),
        ("{{ }}", "line 1, column 4: missing value for command"),
        ("{{ 1 | 2 }}", "line 1, column 8: non executable command in pipeline stage 2"),
        ("{{ \"a }}", "line 1, column 4: unterminated quoted string"),
        ("{{ `a }}", "line 1, column 4: unterminated raw quoted string"),
        ("{{ (1 }}", "line 1, column 7: unclosed left paren"),
        ("{{ 1) }}", "line 1, column 5: unexpected right paren"),
        ("{{ /* x */ }}", "line 1, column 4: unexpected '/' in action"),
        ("{{/* x }}", "line 1, column 1: unclosed comment"),
        ("{{ 1a }}", "line 1, column 4: bad number syntax: \"1a\""),
        ("{{ break }}", "line 1, column 1: {{break}} outside {{range}}"),
        ("{{ $a, $b := 1 }}", "line 1, column 4: too many declarations in command"),
        ("{{ define \"a\" }}1{{ end }}{{ define \"a\" }}2{{ end }}", "multiple definition of template"),
        ("{{ if 1 }}{{ define \"a\" }}{{ end }}{{ end }}", "unexpected <define> in command"),
        ("{{ 1.x }}", "bad number syntax"),
        ("{{ true.x }}", "unexpected . after term \"true\""),
        ("{{ | 1 }}", "unexpected \"|\" in command"),
        ("{{ define \"t\" }}{{ $labels.job }}{{ end }}", "undefined variable \"$labels\""),
        ("{{ a := 1 }}", "function \"a\" not defined"),
    ] {
        let found = parse_error(text);
        assert!(found.contains(expected), "{text}\n  expected {expected}\n  found    {found}");
    }
}

#[test]
fn functions_of_newer_versions_work() {
    for (template, expected) in [
        ("{{ now }}", "1.353755652e+09"),
        ("{{ (now | toTime).Format \"Mon Jan 2 15:04:05 2006\" }}", "Sat Nov 24 11:14:12 2012"),
        (
            "{{ (1800 | toDuration).String }} {{ toDuration 0.0015 }} {{ toDuration -5400.5 }}",
            "30m0s 1.5ms -1h30m0.5s",
        ),
        ("{{ (\"-30m\" | parseDuration | toDuration | (now | toTime).Add).UnixMilli }}", "1353753852000"),
        (
            "{{ urlQueryEscape \"a b\" }} {{ externalURL }} {{ pathPrefix }}",
            "a+b https://prom.example/base /base",
        ),
    ] {
        assert_eq!(expanded(template), expected, "{template}");
    }
}

#[test]
fn an_endless_recursion_stops_at_the_maximum_depth() {
    let found = expanded("{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}");
    assert!(found.contains("exceeded maximum template depth"), "{found}");
}

#[test]
fn steps_output_texts_queries_and_patterns_are_bounded() {
    let many = "{{ range $i := 100000 }}{{ $x := $i }}{{ end }}";
    let nested =
        "{{ range 300 }}{{ range 300 }}{{ end }}{{ end }}{{ range 300 }}{{ range 300 }}{{ end }}{{ end }}";
    let queries = "{{ range 200 }}{{ $x := query \"missing\" }}{{ end }}";
    let doubling = "{{ $x := \"0123456789\" }}{{ range 30 }}{{ $x = print $x $x }}{{ end }}";
    let texts = "{{ $x := printf \"%60000d\" 1 }}{{ range 200 }}{{ $y := print $x \"\" }}{{ end }}";
    let patterns = "{{ range $i := 40 }}{{ $x := match (printf \"a%d+.?\" $i) \"b\" }}{{ end }}";
    let arguments = "{{ $x := args 1 }}{{ range 40 }}{{ $x = args $x $x }}{{ end }}";
    let endless = "{{ range 9000000000000000000 }}x{{ end }}";
    let slices = "{{ $x := printf \"%60000d\" 1 }}{{ range 30000 }}{{ $y := slice $x 1 }}{{ end }}";
    let layout = "{{ (toTime $value).Format (printf \"%300d\" 1) }}";
    for (template, expected) in [
        (slices, "more than 8388608 bytes"),
        (layout, "a layout has more than 256 bytes"),
        ("{{ humanize (printf \"%02000d\" 1) }}", "invalid syntax"),
        ("{{ parseDuration (printf \"%02000ds\" 1) }}", "a duration has more than 1024 bytes"),
        (many, "more than 100000 steps"),
        (nested, "more than 100000 steps"),
        (queries, "more than 100 queries"),
        (doubling, "more than 65536 bytes"),
        (texts, "more than 8388608 bytes"),
        (patterns, "more than 16 regular expressions"),
        (arguments, "nested more than 16 levels"),
        (endless, "more than"),
        ("{{ printf \"%70000d\" 1 }}", "more than 65536 bytes"),
        ("{{ printf \"%99999999999999999999d\" 1 }}", ""),
        ("{{ match \"(a{1,900}){1,900}\" \"a\" }}", "error calling match"),
        ("{{ match \"((a?){500})+b\" (printf \"%60000d\" 1) }}", ""),
    ] {
        let found = expanded(template);
        assert!(found.contains(expected), "{template}\n  expected {expected}\n  found    {found}");
        assert!(found.len() <= OUTPUT_BYTES_MAX);
    }
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(parse_error(&deep).contains("nested more than 40 levels"), "{}", parse_error(&deep));
    let deep = "{{ if true }}".repeat(1_000);
    assert!(parse_error(&deep).contains("nested more than 40 levels"));
    assert!(parse_error(&"x".repeat(TEXT_BYTES_MAX + 1)).contains("65537 bytes, more than the 65536"));
}

#[test]
fn a_template_compiles_each_expression_once() {
    let template = Template::parse("{{ match \"a.+b\" $labels.job }}").expect("valid");
    for _ in 0..3 {
        let found = template.expand(&data(), &FixedQueries, Timestamp::from_ms(0));
        assert_eq!(found.as_deref(), Ok("false"));
    }
    assert_eq!(template.patterns.compiled_total(), 1);
}

#[test]
fn a_histogram_is_the_value_of_its_sample() {
    let data = TemplateData { histogram: histogram_sample().histogram, ..data() };
    let template = Template::parse("{{ $value }} {{ .Value.Sum }}").expect("valid");
    let found = template.expand(&data, &FixedQueries, Timestamp::from_ms(0));
    assert_eq!(found.as_deref(), Ok("{count:3, sum:10, (0.5,1]:1, (1,2]:2} 10"));
}

/// Pieces that make most random texts valid enough to be executed.
const PIECES: [&str; 42] = [
    "{{ ",
    " }}",
    "{{- ",
    " -}}",
    "if ",
    "else ",
    "end",
    "range ",
    "with ",
    "define \"a\"",
    "template \"a\" ",
    "block \"b\" ",
    "break",
    "continue",
    "$x := ",
    "$x = ",
    "$x",
    "$i, $e := ",
    "$labels",
    ".Labels",
    ".Value",
    ".job",
    "$value",
    " | ",
    "( ",
    " )",
    "\"text\" ",
    "`raw` ",
    "'c' ",
    "1 ",
    "2.5 ",
    "-3 ",
    "true ",
    "nil ",
    "eq ",
    "index ",
    "slice ",
    "printf \"%v %5.2f %q\" ",
    "query \"metric\" ",
    "reReplaceAll \"(a|b*)\" \"$1x\" ",
    "args ",
    "humanize ",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_sequence_of_pieces_is_expanded_or_refused(
        pieces in prop::collection::vec(0..PIECES.len(), 0..24),
    ) {
        let text: String = pieces.iter().map(|at| PIECES[*at]).collect();
        prop_assert!(expanded(&text).len() <= OUTPUT_BYTES_MAX + 1_000);
    }

    #[test]
    fn any_text_is_expanded_or_refused(text in "(?s)[{}\\-/*.$:=|,\"'`()\\\\ \n\ta-f0-9é%]{0,80}") {
        let _ = expanded(&text);
        let _ = expanded(&format!("{{{{ {text} }}}}"));
        let format = text.replace(['"', '\\', '\n', '`'], "");
        let _ = expanded(&format!("{{{{ printf \"{format}\" 1 2.5 \"x\" nil $labels }}}}"));
        let _ = expanded(&format!("{{{{ (toTime $value).Format \"{format}\" }}}}"));
    }
}
