package org.apache.kafka.connect.mirror;

import java.nio.file.Files;
import java.nio.file.Path;

import org.apache.kafka.common.TopicPartition;

/**
 * Asks OffsetSync and Checkpoint of any release from 2.7 on, without Kafka. One case per line of a file:
 *
 * `sync <tab> topic <tab> partition <tab> upstream <tab> downstream` and
 * `checkpoint <tab> group <tab> topic <tab> partition <tab> upstream <tab> downstream <tab> metadata` print the bytes of the
 * record's key and value.
 */
public class KafkaOffsetSyncs {

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] fields = line.split("\t", -1);
            out.append(bytes(fields)).append('\n');
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
}
