package mm2mgr.connect;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.common.config.ConfigException;

/**
 * What the text of an assignment says: {@code version=1;rates=9000+7000;unlisted=10;orders:0-7@0+9@1;logs:2@hold}.
 * After the version: the rate of each task in bytes per second; the rate assumed for a partition that is not listed;
 * per topic its partitions in ascending ranges, each with the task that gets it, or {@code hold}: no task does.
 * mm2mgr/assignment_text.py reads and writes the same, and a test compares both.
 */
final class Assignment {

    static final int VERSION = 1;
    /** Connect stores a connector's config as one record, by default of at most 1 MiB. */
    private static final int LONGEST = 700_000;
    private static final int HELD = -1;

    /** The first 16 hexadecimal digits of the text's SHA-256. */
    final String digest;
    final long[] rates;
    private final long unlistedRate;
    /** Per topic, by the first partition of each range: its last partition, and the task. */
    private final Map<String, TreeMap<Integer, int[]>> topics = new HashMap<>();

    /** Blanks around the text do not count: YAML ends a block with a line break. */
    Assignment(String untrimmed) throws ConfigException {
        String text = untrimmed.trim();
        if (untrimmed.length() > LONGEST) {
            throw refusal("is " + untrimmed.length() + " characters long, at most " + LONGEST + " can be stored");
        }
        String[] parts = text.split(";", -1);
        long version = number("version", after("version=", parts[0]), 9);
        if (version != VERSION) {
            throw refusal("is of version " + version + ", and this worker's plugin reads version " + VERSION
                + ": install the newer plugin on every worker first");
        }
        if (parts.length < 3) {
            throw refusal("ends before rates= and unlisted=");
        }
        String[] ofTasks = after("rates=", parts[1]).split("\\+", -1);
        rates = new long[ofTasks.length];
        for (int task = 0; task < rates.length; task++) {
            rates[task] = number("rate", ofTasks[task], 15);
        }
        unlistedRate = number("rate", after("unlisted=", parts[2]), 15);
        for (String part : Arrays.asList(parts).subList(3, parts.length)) {
            addTopic(part);
        }
        digest = digestOf(text);
    }

    private void addTopic(String part) {
        int colon = part.indexOf(':');
        String topic = part.substring(0, Math.max(colon, 0));
        if (!topic.matches("[a-zA-Z0-9._-]{1,249}")) {
            throw refusal("has no topic and partitions in " + shown(part));
        }
        TreeMap<Integer, int[]> ranges = new TreeMap<>();
        if (topics.put(topic, ranges) != null) {
            throw refusal("names topic " + topic + " twice");
        }
        int next = 0;
        for (String range : part.substring(colon + 1).split("\\+", -1)) {
            String[] ends = range.substring(0, Math.max(range.indexOf('@'), 0)).split("-", 2);
            int first = (int) number("partition", ends[0], 9);
            int last = (int) number("partition", ends[ends.length - 1], 9);
            String goal = range.substring(range.indexOf('@') + 1);
            int task = goal.equals("hold") ? HELD : (int) number("task", goal, 9);
            if (first < next || last < first) {
                throw refusal("has partitions of " + topic + " not in ascending order: " + shown(range));
            }
            if (task >= rates.length) {
                throw refusal("has " + rates.length + " rates, and a partition of " + topic + " for task " + task);
            }
            ranges.put(first, new int[] {last, task});
            next = last + 1;
        }
    }

    /** Return the partitions of each task that has any; tasks from {@code maxTasks} on leave theirs unlisted. */
    List<List<String>> tasks(Map<String, TreeSet<Integer>> partitions, int maxTasks) {
        long[] load = Arrays.copyOf(rates, Math.min(maxTasks, rates.length));
        List<List<String>> tasks = new ArrayList<>();
        while (tasks.size() < load.length) {
            tasks.add(new ArrayList<>());
        }
        List<String> unlisted = new ArrayList<>();
        for (Map.Entry<String, TreeSet<Integer>> topic : partitions.entrySet()) {
            TreeMap<Integer, int[]> ranges = topics.getOrDefault(topic.getKey(), new TreeMap<>());
            for (int number : topic.getValue()) {
                Map.Entry<Integer, int[]> range = ranges.floorEntry(number);
                int task = range != null && number <= range.getValue()[0] ? range.getValue()[1] : load.length;
                if (task != HELD) {
                    (task < load.length ? tasks.get(task) : unlisted).add(topic.getKey() + "-" + number);
                }
            }
        }
        for (String partition : unlisted) {
            int lightest = 0;
            for (int task = 1; task < load.length; task++) {
                lightest = load[task] < load[lightest] ? task : lightest;
            }
            tasks.get(lightest).add(partition);
            load[lightest] += Math.max(1, unlistedRate);
        }
        tasks.removeAll(List.of(List.of())); // a task without partitions fails when it polls
        return tasks;
    }

    private static String after(String name, String part) {
        if (!part.startsWith(name)) {
            throw refusal("has " + shown(part) + " where " + name + " belongs");
        }
        return part.substring(name.length());
    }

    private static long number(String what, String digits, int most) {
        if (!digits.matches("[0-9]{1," + most + "}")) {
            throw refusal("has " + shown(digits) + " where a " + what + " belongs");
        }
        return Long.parseLong(digits);
    }

    private static String shown(String text) {
        return '"' + (text.length() > 60 ? text.substring(0, 60) + "..." : text) + '"';
    }

    /** Not ConfigException(name, value, message): that would repeat the whole text. */
    private static ConfigException refusal(String reason) {
        return new ConfigException("mm2mgr.assignment " + reason);
    }

    private static String digestOf(String text) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return String.format("%016x", ByteBuffer.wrap(hash).getLong());
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible); // every Java has SHA-256
        }
    }
}
