package mm2mgr.connect;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;

/**
 * MirrorMaker's source connector with tasks made from an assignment in its config, not round-robin. Without that key it
 * is the stock connector. Tasks, offsets, topics and all other keys stay MirrorMaker's.
 */
public class AssignedMirrorSourceConnector extends MirrorSourceConnector {

    static final String ASSIGNMENT_KEY = "mm2mgr.assignment";
    /** In the config of each task instead of the assignment: tells from which text the task was made. */
    static final String DIGEST_KEY = "mm2mgr.assignment.digest";
    // Of MirrorSourceConfig, not public there; tests hold them on each supported line of Kafka.
    private static final String PARTITIONS_KEY = "task.assigned.partitions";
    private static final String INDEX_KEY = "task.index"; // since 3.5, KAFKA-14838

    private Assignment assignment;

    @Override
    public String version() {
        return Assignment.VERSION + ".0"; // GET /connector-plugins tells which text this worker reads
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef(super.config()).define(
            ASSIGNMENT_KEY, ConfigDef.Type.STRING, null, ConfigDef.Importance.MEDIUM,
            "Which task gets which source partition, as mm2mgr writes it. Not set: round-robin, as MirrorMaker does.");
    }

    /** Has Connect answer 400 to what this plugin cannot read, so that the tasks go on as they are. */
    @Override
    public Config validate(Map<String, String> props) {
        Config validated = super.validate(props);
        for (ConfigValue value : validated.configValues()) {
            if (ASSIGNMENT_KEY.equals(value.name()) && props.get(ASSIGNMENT_KEY) != null) {
                try {
                    int tasks = new Assignment(props.get(ASSIGNMENT_KEY)).rates.length;
                    String most = props.getOrDefault("tasks.max", "1").trim();
                    if (most.matches("[0-9]{1,9}") && Integer.parseInt(most) < tasks) {
                        value.addErrorMessage(ASSIGNMENT_KEY + " has " + tasks + " tasks, but tasks.max is " + most);
                    }
                } catch (ConfigException refused) {
                    value.addErrorMessage(refused.getMessage());
                }
            }
        }
        return validated;
    }

    @Override
    public void start(Map<String, String> props) {
        String text = props.get(ASSIGNMENT_KEY);
        assignment = text == null ? null : new Assignment(text); // before super, whose threads may ask for new tasks
        super.start(props);
    }

    /** Each partition that MirrorMaker replicates now is in exactly one task, or in none because it is held. */
    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        List<Map<String, String>> all = super.taskConfigs(assignment == null ? maxTasks : 1);
        if (assignment == null || all.isEmpty()) {
            return all;
        }
        Map<String, String> common = new HashMap<>(all.get(0));
        common.remove(ASSIGNMENT_KEY); // up to 700 kB, which Connect would store once more for each task
        common.put(DIGEST_KEY, assignment.digest);
        // Sorted: MirrorMaker's own order changes with each listing, and one changed task config restarts all tasks.
        Map<String, TreeSet<Integer>> partitions = new TreeMap<>();
        for (String partition : common.get(PARTITIONS_KEY).split(",")) {
            int dash = partition.lastIndexOf('-');
            partitions.putIfAbsent(partition.substring(0, dash), new TreeSet<>());
            partitions.get(partition.substring(0, dash)).add(Integer.valueOf(partition.substring(dash + 1)));
        }
        List<Map<String, String>> configs = new ArrayList<>();
        for (List<String> task : assignment.tasks(partitions, maxTasks)) {
            Map<String, String> config = new HashMap<>(common);
            config.put(PARTITIONS_KEY, String.join(",", task));
            config.put(INDEX_KEY, String.valueOf(configs.size()));
            configs.add(config);
        }
        return configs;
    }
}
