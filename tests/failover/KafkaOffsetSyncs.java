package org.apache.kafka.connect.mirror;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Asks OffsetSyncStore, OffsetSync and Checkpoint of any release from 2.7 on, without Kafka. One case per line of a file:
 *
 * `translate <tab> syncs at the task's start <tab> checkpoints were read (true, false) <tab> syncs as upstream:downstream
 * <tab> offsets` prints the translated offsets, `-` where no checkpoint is written;
 * `sync <tab> topic <tab> partition <tab> upstream <tab> downstream` and
 * `checkpoint <tab> group <tab> topic <tab> partition <tab> upstream <tab> downstream <tab> metadata` print the bytes of the
 * record's key and value.
 */
public class KafkaOffsetSyncs {

    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] fields = line.split("\t", -1);
            out.append(fields[0].equals("translate") ? translate(fields) : bytes(fields)).append('\n');
        }
        Files.writeString(Path.of(arguments[1]), out.toString());
    }

    private static String bytes(String[] fields) {
        boolean isSync = fields[0].equals("sync");
        int at = isSync ? 1 : 2;
        TopicPartition partition = new TopicPartition(fields[at], Integer.parseInt(fields[at + 1]));
        long upstream = Long.parseLong(fields[at + 2]);
        long downstream = Long.parseLong(fields[at + 3]);
        byte[] key;
        byte[] value;
        if (isSync) {
            OffsetSync sync = new OffsetSync(partition, upstream, downstream);
            key = sync.recordKey();
            value = sync.recordValue();
        } else {
            Checkpoint checkpoint = new Checkpoint(fields[1], partition, upstream, downstream, fields[6]);
            key = checkpoint.recordKey();
            value = checkpoint.recordValue();
        }
        return hex(key) + "\t" + hex(value);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte next : bytes) {
            text.append(String.format("%02x", next));
        }
        return text.toString();
    }

    private static String translate(String[] fields) throws Exception {
        OffsetSyncStore store = newStore();
        int startedAt = Integer.parseInt(fields[1]);
        setIfThere(store, "initializationMustReadToEnd", !Boolean.parseBoolean(fields[2]));
        String[] syncs = fields[3].isEmpty() ? new String[0] : fields[3].split(",");
        for (int number = 0; number < syncs.length; number++) {
            setIfThere(store, "readToEnd", number >= startedAt);
            String[] offsets = syncs[number].split(":");
            OffsetSync sync = new OffsetSync(PARTITION, Long.parseLong(offsets[0]), Long.parseLong(offsets[1]));
            store.handleRecord(new ConsumerRecord<>("syncs", 0, number, sync.recordKey(), sync.recordValue()));
        }
        setIfThere(store, "readToEnd", true);
        List<String> answers = new ArrayList<>();
        for (String offset : fields[4].split(",")) {
            answers.add(answer(store, Long.parseLong(offset)));
        }
        return String.join(",", answers);
    }

    /** Without clients: a constructor for tests, which has no arguments, or takes a consumer and a partition. */
    private static OffsetSyncStore newStore() throws ReflectiveOperationException {
        for (Constructor<?> constructor : OffsetSyncStore.class.getDeclaredConstructors()) {
            if (constructor.getParameterCount() != 1) {
                constructor.setAccessible(true);
                return (OffsetSyncStore) constructor.newInstance(new Object[constructor.getParameterCount()]);
            }
        }
        throw new IllegalStateException("no constructor for tests");
    }

    private static void setIfThere(OffsetSyncStore store, String name, boolean value) throws ReflectiveOperationException {
        try {
            Field field = OffsetSyncStore.class.getDeclaredField(name);
            field.setAccessible(true);
            field.setBoolean(store, value);
        } catch (NoSuchFieldException ignored) {
            // an earlier release
        }
    }

    private static String answer(OffsetSyncStore store, long offset) throws ReflectiveOperationException {
        for (Method method : OffsetSyncStore.class.getDeclaredMethods()) {
            if (method.getName().equals("translateDownstream")) {
                method.setAccessible(true);
                Object answer = method.getParameterCount() == 3
                    ? method.invoke(store, "group", PARTITION, offset)
                    : method.invoke(store, PARTITION, offset);
                long translated = answer instanceof OptionalLong ? ((OptionalLong) answer).orElse(-1L) : (Long) answer;
                return translated < 0 ? "-" : Long.toString(translated);
            }
        }
        throw new IllegalStateException("translateDownstream is gone");
    }
}
