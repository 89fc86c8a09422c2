import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.mirror.MirrorSourceConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.source.SourceConnector;

/**
 * Asks the plugin for its task configs, without Kafka: one case per line of a file, `assignment in base64 <tab> tasks.max
 * <tab> partitions as MirrorMaker would list them`. Prints per case what validation says, or `started`, the digest and the
 * keys that are not the connector's own, then each task's index and partitions.
 */
public class TaskConfigs {

    public static void main(String[] arguments) throws Exception {
        Class<?> plugin = Class.forName(arguments[0]);
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            String[] fields = line.split("\t", -1);
            String text = new String(Base64.getDecoder().decode(fields[0]), StandardCharsets.UTF_8);
            SourceConnector connector = (SourceConnector) plugin.getConstructor().newInstance();
            out.append(answer(connector, text, fields[1], partitions(fields[2]))).append('\n');
        }
        Files.writeString(Path.of(arguments[2]), out.toString());
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String partition : text.isEmpty() ? new String[0] : text.split(",")) {
            int dash = partition.lastIndexOf('-');
            partitions.add(new TopicPartition(partition.substring(0, dash), Integer.parseInt(partition.substring(dash + 1))));
        }
        return partitions;
    }

    private static String answer(SourceConnector connector, String text, String tasksMax, List<TopicPartition> partitions)
            throws Exception {
        Map<String, String> props = new HashMap<>(Map.of("name", "mirror", "connector.class", connector.getClass().getName(),
            "source.cluster.alias", "a", "target.cluster.alias", "b", "topics", ".*", "tasks.max", tasksMax));
        if (!text.equals("none")) {
            props.put("mm2mgr.assignment", text);
        }
        List<String> errors = new ArrayList<>();
        for (ConfigValue value : connector.validate(props).configValues()) {
            if (value.name().equals("mm2mgr.assignment")) {
                errors.addAll(value.errorMessages());
            }
        }
        Map<String, String> disabled = new HashMap<>(props);
        disabled.put("enabled", "false"); // reads its own keys, and connects to nothing
        try {
            connector.start(disabled);
        } catch (RuntimeException refused) {
            return "refused\t" + (errors.contains(refused.getMessage()) ? "also by validate" : "ONLY AT START") + "\t"
                + refused.getMessage().replace('\n', ' ').replace('\t', ' ');
        }
        set(connector, "config", new MirrorSourceConfig(props));
        set(connector, "knownSourceTopicPartitions", partitions);
        StringBuilder tasks = new StringBuilder();
        String common = "";
        for (Map<String, String> config : connector.taskConfigs(Integer.parseInt(tasksMax))) {
            Map<String, String> own = new TreeMap<>(config);
            String assigned = own.remove("task.assigned.partitions");
            String index = own.remove("task.index");
            Map<String, String> expected = new TreeMap<>(props);
            expected.remove("mm2mgr.assignment");
            own.entrySet().removeIf(entry -> entry.getValue().equals(expected.get(entry.getKey())));
            common = config.keySet().containsAll(expected.keySet()) ? own.toString() : "keys are missing";
            tasks.append('\t').append(index).append('=').append(assigned);
        }
        return (errors.isEmpty() ? "started" : "refused by validate: " + errors) + "\t" + common + tasks;
    }

    private static void set(Object connector, String name, Object value) throws ReflectiveOperationException {
        Field field = MirrorSourceConnector.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(connector, value);
    }
}
