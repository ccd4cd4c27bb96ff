import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import java.util.function.BiFunction;
import org.springframework.core.convert.ConversionException;
import org.springframework.core.convert.support.DefaultConversionService;

/** What Java and Spring take for one value: as convert.py. */
final class Convert {
    private static final DefaultConversionService SPRING = new DefaultConversionService();

    /** A value for a spelling and the row; none where the row has another one. */
    private static final Map<String, BiFunction<String, String, Object>> HOW = Map.of(
            "Long.parseLong", (text, row) -> Long.parseLong(text),
            "Integer.valueOf", (text, row) -> Integer.valueOf(text),
            "Long.decode", (text, row) -> Long.decode(text),
            "new BigInteger", (text, row) -> new BigInteger(text),
            "UUID.fromString", (text, row) -> UUID.fromString(text),
            "equalsIgnoreCase", (text, row) -> text.equalsIgnoreCase(row) ? row : null,
            "convert(id, Long.class)", (text, row) -> SPRING.convert(text, Long.class),
            "convert(id, UUID.class)", (text, row) -> SPRING.convert(text, UUID.class));

    private Convert() {}

    private static String read(String how, String row, String spelling) {
        try {
            Object value = HOW.get(how).apply(spelling, row);
            return value == null ? "-" : "=" + HexFormat.of().formatHex(value.toString().getBytes(StandardCharsets.UTF_8));
        } catch (IllegalArgumentException | ConversionException refused) {
            return "!";
        }
    }

    public static void main(String[] none) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            System.out.println(read(text(words[0]), text(words[1]), text(words[2])));
        }
    }

    private static String text(String word) {
        return new String(HexFormat.of().parseHex(word), StandardCharsets.UTF_8);
    }
}
