package fencegate.fencing;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads the vectors, so that the tests need no library: objects are maps, arrays lists, numbers doubles. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value();
        if (json.next() != '\0') {
            throw new IllegalArgumentException("more at " + json.at);
        }
        return value;
    }

    private char next() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : '\0';
    }

    private boolean took(char wanted) {
        boolean there = next() == wanted;
        at += there ? 1 : 0;
        return there;
    }

    private void take(char wanted) {
        if (!took(wanted)) {
            throw new IllegalArgumentException(wanted + " is missing at " + at);
        }
    }

    private Object value() {
        return switch (next()) {
            case '{' -> object();
            case '[' -> array();
            case '"' -> string();
            default -> word();
        };
    }

    private Map<String, Object> object() {
        Map<String, Object> object = new LinkedHashMap<>();
        take('{');
        while (!took('}')) {
            next();
            String name = string();
            take(':');
            object.put(name, value());
            took(',');
        }
        return object;
    }

    private List<Object> array() {
        List<Object> array = new ArrayList<>();
        take('[');
        while (!took(']')) {
            array.add(value());
            took(',');
        }
        return array;
    }

    private String string() {
        StringBuilder string = new StringBuilder();
        at++;
        for (char letter = text.charAt(at++); letter != '"'; letter = text.charAt(at++)) {
            string.append(letter == '\\' ? escape() : letter);
        }
        return string.toString();
    }

    private char escape() {
        char letter = text.charAt(at++);
        return switch (letter) {
            case 'u' -> {
                at += 4;
                yield (char) Integer.parseInt(text.substring(at - 4, at), 16);
            }
            case 't' -> '\t';
            case 'n' -> '\n';
            case 'r' -> '\r';
            default -> letter;
        };
    }

    private Object word() {
        int from = at;
        while (at < text.length() && "+-.".indexOf(text.charAt(at)) + 1 + (Character.isLetterOrDigit(text.charAt(at)) ? 1 : 0) > 0) {
            at++;
        }
        String word = text.substring(from, at);
        return switch (word) {
            case "null" -> null;
            case "true" -> true;
            case "false" -> false;
            default -> Double.parseDouble(word);
        };
    }
}
