import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.network.ChannelBuilder;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.LogContext;

/**
 * Answers what Kafka's own classes refuse of connector configs: one JSON object a line in, {"type", "config"}, one a line
 * out, {"refused": [{"by", "says"}]}. It does what a worker does until the first connection: Connect's validation, the
 * config of connector and tasks, their plugins, and every Kafka client. It connects to nothing but addresses of the cases.
 */
public class Refusals {
    private static final String CONNECT = "org.apache.kafka.connect.";
    private static final String MIRROR = CONNECT + "mirror.Mirror";
    private static final ObjectMapper JSON = new ObjectMapper();

    interface Step {
        void run() throws Throwable;
    }

    private final Object herder;
    private final Object workerConfig;
    private final Object plugins;
    private final Object policy;
    private final ClassLoader loader;
    private final ExecutorService closers = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });
    private final Map<String, String> clientAnswers = new ConcurrentHashMap<>();  // client and its settings -> what it says

    public static void main(String[] arguments) throws Throwable {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Map<String, String> worker = new TreeMap<>();
        for (String each : arguments) {
            worker.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        }
        Refusals kafka = new Refusals(worker);
        // Clients that are closed wait for their threads; others are made meanwhile. Answers come in the order of the cases.
        ExecutorService several = Executors.newFixedThreadPool(4);
        BlockingQueue<Future<String>> open = new LinkedBlockingQueue<>();
        Thread printer = new Thread(() -> {
            try {
                while (true) {
                    answers.println(open.take().get());
                }
            } catch (Exception thrown) {
                thrown.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        printer.setDaemon(true);
        printer.start();
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            String asked = line;
            open.add(several.submit(() -> kafka.answer(asked)));
        }
        System.exit(0);
    }

    /** Answers one line; the threads have the loader of a worker, which also knows the short names of plugins. */
    private String answer(String line) throws Exception {
        Thread.currentThread().setContextClassLoader(loader);
        JsonNode asked = JSON.readTree(line);
        Map<String, String> config = new LinkedHashMap<>();
        asked.get("config").fields().forEachRemaining(
            entry -> config.put(entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asText()));
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode refused = answer.putArray("refused");
        for (Map.Entry<String, String> each : refused(asked.get("type").asText(), config).entrySet()) {
            refused.addObject().put("by", each.getKey()).put("says", each.getValue());
        }
        return JSON.writeValueAsString(answer);
    }

    /** Builds a worker's herder without its constructor, which would connect: only what validation reads is there. */
    Refusals(Map<String, String> properties) throws Throwable {
        workerConfig = create(CONNECT + "runtime.distributed.DistributedConfig", properties);
        plugins = create(CONNECT + "runtime.isolation.Plugins", Map.of("plugin.discovery", "service_load"));
        loader = (ClassLoader) call(plugins, "delegatingLoader");
        policy = create(CONNECT + "connector.policy.AllConnectorClientConfigOverridePolicy");
        Object worker = allocate(CONNECT + "runtime.Worker");
        set(worker, "plugins", plugins);
        set(worker, "config", workerConfig);
        set(worker, "workerConfigTransformer", create(CONNECT + "runtime.WorkerConfigTransformer", worker, Map.of()));
        herder = allocate(CONNECT + "runtime.distributed.DistributedHerder");
        set(herder, "config", workerConfig);
        set(herder, "worker", worker);
        Field field = field(herder.getClass(), "connectorClientConfigOverridePolicy");
        if (field != null) {
            field.set(herder, policy);
        } else {
            set(herder, "connectorClientConfigOverridePolicyPlugin",
                callStatic("org.apache.kafka.common.internals.Plugin", "wrapInstance", policy, null, "policy"));
        }
        if (field(herder.getClass(), "cachedConnectors") != null) {
            set(herder, "cachedConnectors", create(CONNECT + "runtime.CachedConnectors", plugins));
        } else {
            set(herder, "tempConnectors", new java.util.concurrent.ConcurrentHashMap<>());
        }
        if (field(herder.getClass(), "time") != null) {
            set(herder, "time", org.apache.kafka.common.utils.Time.SYSTEM);
        }
    }

    Map<String, String> refused(String type, Map<String, String> config) {
        Map<String, String> refused = new LinkedHashMap<>();
        step(refused, "validation", () -> validate(config, refused));
        if (!refused.isEmpty()) {
            return refused;  // Connect keeps such a config out
        }
        step(refused, "connector", () -> connector(type, config, refused));
        return refused;
    }

    private static void step(Map<String, String> refused, String name, Step step) {
        try {
            step.run();
        } catch (Throwable thrown) {
            refused.put(name, says(thrown));
        }
    }

    private static String says(Throwable thrown) {
        Throwable cause = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
        StringBuilder text = new StringBuilder(cause.toString());
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
            text.append(" < ").append(cause);
        }
        return text.length() > 600 ? text.substring(0, 600) : text.toString();
    }

    private void validate(Map<String, String> config, Map<String, String> refused) throws Throwable {
        Object infos;
        if (method(herder.getClass(), "validateConnectorConfig", 3, Function.class) != null) {
            Class<?> stage = Class.forName(CONNECT + "util.TemporaryStage");
            Function<String, Object> none = words -> {
                try {
                    Class<?> callback = Class.forName(CONNECT + "util.Callback");
                    Object ignored = java.lang.reflect.Proxy.newProxyInstance(
                        callback.getClassLoader(), new Class<?>[] {callback}, (proxy, method, arguments) -> null);
                    return create(stage.getName(), words, ignored, org.apache.kafka.common.utils.Time.SYSTEM);
                } catch (Throwable thrown) {
                    throw new IllegalStateException(thrown);
                }
            };
            infos = method(herder.getClass(), "validateConnectorConfig", 3, Function.class).invoke(herder, config, none, false);
        } else {
            infos = method(herder.getClass(), "validateConnectorConfig", 2, boolean.class).invoke(herder, config, false);
        }
        for (Object info : (List<?>) call(infos, method(infos.getClass(), "configs", 0, null) != null ? "configs" : "values")) {
            Object value = call(info, "configValue");
            List<?> errors = (List<?>) call(value, "errors");
            if (!errors.isEmpty()) {
                refused.put("validation of " + call(value, "name"), errors.toString());
            }
        }
        if ((int) call(infos, "errorCount") > 0 && refused.isEmpty()) {
            refused.put("validation", "errors without a key");
        }
    }

    /** What the worker and the connector's start do, then the tasks. */
    private void connector(String type, Map<String, String> config, Map<String, String> refused) throws Throwable {
        Object own = create(CONNECT + "runtime.SourceConnectorConfig", plugins, config, true);
        String kind = Character.toUpperCase(type.charAt(0)) + type.substring(1);
        // Before 3.4 one class served all connectors.
        Object mirror = create(exists(MIRROR + kind + "Config") ? MIRROR + kind + "Config" : MIRROR + "ConnectorConfig", config);
        if (!((boolean) call(mirror, "enabled"))) {
            if (!type.equals("heartbeat")) {
                return;
            }
        }
        boolean ownOffsets = has(own, "offsetsTopic", 0) && call(own, "offsetsTopic") != null;  // KIP-618 (3.3)
        if (ownOffsets) {
            framework(own, "consumer", refused);
        }
        if (ownOffsets || (boolean) call(own, "usesTopicCreation")) {
            framework(own, "admin", refused);
        }
        call(mirror, "replicationPolicy");
        Object emits = "true";
        if (type.equals("source")) {
            call(mirror, "topicFilter");
            call(mirror, "configPropertyFilter");
            admin(mirror, "source admin", (Map<?, ?>) role(mirror, "sourceAdminConfig", "replication-source-admin"), refused);
            admin(mirror, "target admin", (Map<?, ?>) role(mirror, "targetAdminConfig", "replication-target-admin"), refused);
            if (method(mirror.getClass(), "emitOffsetSyncsEnabled", 0, null) != null) {
                emits = call(mirror, "emitOffsetSyncsEnabled");
            }
            if (!emits.equals(false) && has(mirror, "offsetSyncsTopicAdminConfig", 0)) {  // KIP-716 (3.0)
                admin(mirror, "offset-syncs admin", (Map<?, ?>) call(mirror, "offsetSyncsTopicAdminConfig"), refused);
            }
            scheduled(mirror, refused, "syncTopicAclsInterval", "syncTopicConfigsInterval", "refreshTopicsInterval");
        } else if (type.equals("checkpoint")) {
            call(mirror, "topicFilter");
            call(mirror, "groupFilter");
            admin(mirror, "source admin", (Map<?, ?>) role(mirror, "sourceAdminConfig", "checkpoint-source-admin"), refused);
            admin(mirror, "target admin", (Map<?, ?>) role(mirror, "targetAdminConfig", "checkpoint-target-admin"), refused);
            scheduled(mirror, refused, "refreshGroupsInterval");
        } else {
            admin(mirror, "target admin", (Map<?, ?>) role(mirror, "targetAdminConfig", "heartbeats-target-admin"), refused);
        }
        call(own, "errorToleranceType");
        if (!type.equals("heartbeat")) {
            Object formats = ((AbstractConfig) mirror).values().get("metric.names.formats");
            if (formats == null || ((List<?>) formats).contains("legacy")) {
                call(mirror, "metricsReporters");
            }
        }
        converters(own);
        if (!config.getOrDefault("transforms", "").isBlank()) {
            transformations(own);
        }
        framework(own, "producer", refused);
        if (type.equals("source")) {
            if (!emits.equals(false)) {
                String producer = has(mirror, "offsetSyncsTopicProducerConfig", 0) ? "offsetSyncsTopicProducerConfig" : "sourceProducerConfig";
                client("producer", "offset-syncs producer", (Map<?, ?>) call(mirror, producer), refused);
            }
            client("consumer", "source consumer", (Map<?, ?>) role(mirror, "sourceConsumerConfig", "replication-consumer"), refused);
            call(mirror, "consumerPollTimeout");
        } else if (type.equals("checkpoint")) {
            if (has(mirror, "offsetSyncsTopicConsumerConfig", 0)) {
                client("consumer", "offset-syncs consumer", (Map<?, ?>) call(mirror, "offsetSyncsTopicConsumerConfig"), refused);
                admin(mirror, "offset-syncs admin", (Map<?, ?>) call(mirror, "offsetSyncsTopicAdminConfig"), refused);
            } else {
                client("consumer", "offset-syncs consumer", (Map<?, ?>) call(mirror, "sourceConsumerConfig"), refused);
            }
            if (exists(CONNECT + "mirror.CheckpointStore")) {
                client("consumer", "checkpoints consumer", (Map<?, ?>) role(mirror, "targetConsumerConfig", "checkpoints-target-consumer"), refused);
            }
            Duration[] read = {(Duration) call(mirror, "emitCheckpointsInterval"), (Duration) call(mirror, "consumerPollTimeout")};
            read[0].toMillis();
        } else {
            ((Duration) call(mirror, "emitHeartbeatsInterval")).toMillis();
        }
    }

    private void converters(Object own) throws Throwable {
        Class<?> usage = Class.forName(CONNECT + "runtime.isolation.Plugins$ClassLoaderUsage");
        Object current = usage.getEnumConstants()[0];
        for (String each : List.of("key.converter", "value.converter", "header.converter")) {
            String name = each.equals("header.converter") ? "newHeaderConverter" : "newConverter";
            if (((AbstractConfig) own).originals().get(each) == null) {
                continue;
            }
            Method simple = method(plugins.getClass(), name, 3, usage);
            if (simple != null) {
                simple.invoke(plugins, own, each, current);
            } else {
                method(plugins.getClass(), name, 3, String.class).invoke(plugins, own, each, each + ".plugin.version");
            }
        }
    }

    private void transformations(Object own) throws Throwable {
        Method before = method(own.getClass(), "transformations", 0, null);  // before 3.6
        Method stages = before != null ? before : method(own.getClass(), "transformationStages", 0, null);
        if (stages != null) {
            stages.invoke(own);
        } else {
            Object id = create(CONNECT + "util.ConnectorTaskId", "name", 0);
            Object metrics = create(CONNECT + "runtime.ConnectMetrics", "worker", workerConfig,
                org.apache.kafka.common.utils.Time.SYSTEM, "cluster");
            try {
                method(own.getClass(), "transformationStages", 3, null).invoke(own, plugins, id, metrics);
            } finally {
                call(metrics, "stop");
            }
        }
    }

    private void scheduled(Object mirror, Map<String, String> refused, String... intervals) {
        for (String name : intervals) {
            step(refused, name, () -> {
                Duration interval = (Duration) call(mirror, name);
                if (interval.toMillis() == 0) {
                    throw new IllegalArgumentException("scheduleAtFixedRate with 0");
                }
            });
        }
    }

    private void framework(Object own, String kind, Map<String, String> refused) throws Throwable {
        Class<?> worker = Class.forName(CONNECT + "runtime.Worker");
        Class<?> connector = Class.forName(MIRROR + "SourceConnector");
        boolean newer = method(worker, "baseProducerConfigs", 7, null) != null;  // KIP-618 (3.3)
        String name = kind.equals("producer") ? (newer ? "baseProducerConfigs" : "producerConfigs")
            : kind.equals("admin") ? "adminConfigs" : "regularSourceOffsetsConsumerConfigs";
        Object owner = newer ? "name" : create(CONNECT + "util.ConnectorTaskId", "name", 0);
        List<Object> arguments = new ArrayList<>(List.of(owner, "client", workerConfig, own, connector, policy, "cluster"));
        if (kind.equals("admin") && method(worker, name, 8, null) != null) {
            arguments.add(Class.forName(CONNECT + "health.ConnectorType").getEnumConstants()[0]);
        }
        step(refused, "framework " + kind, () -> {
            Object made = method(worker, name, arguments.size(), null).invoke(null, arguments.toArray());
            client(kind, "framework " + kind, (Map<?, ?>) made, refused);
        });
    }

    private void admin(Object mirror, String name, Map<?, ?> settings, Map<String, String> refused) {
        String own = String.valueOf(((AbstractConfig) mirror).values().get("forwarding.admin.class"));
        answer(refused, name, "admin " + own, settings, () -> {
            Method forwarding = method(mirror.getClass(), "forwardingAdmin", 1, null);  // KIP-787 (3.5)
            @SuppressWarnings("unchecked")
            Map<String, Object> given = (Map<String, Object>) settings;
            Object made = forwarding != null ? forwarding.invoke(mirror, settings) : Admin.create(given);
            closed(() -> ((Admin) made).close(Duration.ZERO));
        });
    }

    private void client(String kind, String name, Map<?, ?> settings, Map<String, String> refused) {
        @SuppressWarnings("unchecked")
        Map<String, Object> given = (Map<String, Object>) settings;
        boolean framework = name.startsWith("framework");
        answer(refused, name, kind + framework, settings, () -> {
            if (kind.equals("producer")) {
                KafkaProducer<?, ?> made = framework ? new KafkaProducer<>(given)
                    : new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
                closed(() -> made.close(Duration.ZERO));
            } else if (kind.equals("consumer")) {
                KafkaConsumer<?, ?> made = framework ? new KafkaConsumer<>(given)
                    : new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                closed(() -> made.close(Duration.ZERO));
            } else {
                Admin made = Admin.create(given);
                closed(() -> made.close(Duration.ZERO));
            }
        });
    }

    /** Closes a client, or leaves it: the thread of one may sleep for its retry.backoff.ms, which can be years. */
    private void closed(Runnable close) {
        try {
            closers.submit(close).get(2, TimeUnit.SECONDS);
        } catch (TimeoutException | InterruptedException | ExecutionException left) {
            System.err.println("left open: " + left);
        }
    }

    /** Clients with the same settings get the same answer. */
    private void answer(Map<String, String> refused, String name, String kind, Map<?, ?> settings, Step build) {
        TreeMap<String, String> sorted = new TreeMap<>();
        settings.forEach((key, value) -> sorted.put(String.valueOf(key), String.valueOf(value)));
        if (!settings.containsKey("client.id") || String.valueOf(settings.get("client.id")).contains("|")) {
            sorted.remove("client.id");
        }
        String says = clientAnswers.computeIfAbsent(kind + sorted, ignored -> {
            Map<String, String> own = new LinkedHashMap<>();
            step(own, name, build);
            if (own.isEmpty()) {
                step(own, name, () -> connection(kind, settings));
            }
            return own.getOrDefault(name, "");
        });
        if (clientAnswers.size() > 20000) {
            clientAnswers.clear();
        }
        if (!says.isEmpty()) {
            refused.put(name, says);
        }
    }

    /** What a connection needs of the JVM: a SASL client for the mechanism, a TLS engine, a way to compare host names. */
    private static void connection(String kind, Map<?, ?> settings) throws Throwable {
        Map<String, Object> given = new HashMap<>();
        settings.forEach((key, value) -> given.put(String.valueOf(key), value));
        given.putIfAbsent("key.deserializer", ByteArrayDeserializer.class);
        given.putIfAbsent("value.deserializer", ByteArrayDeserializer.class);
        given.putIfAbsent("key.serializer", ByteArraySerializer.class);
        given.putIfAbsent("value.serializer", ByteArraySerializer.class);
        AbstractConfig config = kind.startsWith("producer") ? new ProducerConfig(given)
            : kind.startsWith("consumer") ? new ConsumerConfig(given) : new AdminClientConfig(given);
        String protocol = config.getString("security.protocol").toUpperCase(java.util.Locale.ROOT);
        if (kind.startsWith("consumer") && "consumer".equalsIgnoreCase(String.valueOf(config.values().get("group.protocol")))) {
            // Before 4.0 such a consumer makes its channels in a thread of its own, which ends unnoticed.
            ((ChannelBuilder) callStatic("org.apache.kafka.clients.ClientUtils", "createChannelBuilder", config,
                org.apache.kafka.common.utils.Time.SYSTEM, new LogContext())).close();
        }
        if (protocol.startsWith("SASL_")) {
            for (String each : List.of("scram.internals.ScramSaslClientProvider", "oauthbearer.internals.OAuthBearerSaslClientProvider")) {
                callStatic("org.apache.kafka.common.security." + each, "initialize");
            }
            String mechanism = config.getString("sasl.mechanism");
            boolean known = false;
            java.util.Enumeration<javax.security.sasl.SaslClientFactory> factories = javax.security.sasl.Sasl.getSaslClientFactories();
            while (factories.hasMoreElements()) {
                known |= Arrays.asList(factories.nextElement().getMechanismNames(null)).contains(mechanism);
            }
            if (!known) {
                throw new ConfigException("no SASL client for mechanism " + mechanism);
            }
            if (mechanism.equals("OAUTHBEARER")) {
                token(config);
            }
        }
        if (protocol.endsWith("SSL")) {
            Object factory = create("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory");
            call(factory, "configure", config.values());
            call(factory, "createClientSslEngine", "localhost", 9093,
                String.valueOf(config.values().get("ssl.endpoint.identification.algorithm")));
            String algorithm = config.getString("ssl.endpoint.identification.algorithm");
            if (algorithm != null && !algorithm.isEmpty()) {
                try {
                    callStatic("sun.security.ssl.X509TrustManagerImpl", "checkIdentity", "localhost", null, algorithm);
                } catch (InvocationTargetException thrown) {
                    if (thrown.getCause() instanceof java.security.cert.CertificateException) {
                        throw thrown;  // of an algorithm that it knows it asks for the certificate, which is not there
                    }
                }
            }
        }
    }

    /** A login may succeed without a token; then OAuthBearerSaslClientCallbackHandler throws at the first connection. */
    private static void token(AbstractConfig config) throws Throwable {
        ChannelBuilder channels = (ChannelBuilder) callStatic("org.apache.kafka.clients.ClientUtils", "createChannelBuilder", config,
            org.apache.kafka.common.utils.Time.SYSTEM, new LogContext());
        Class<?> token = Class.forName("org.apache.kafka.common.security.oauthbearer.OAuthBearerToken");
        try {
            for (Object login : ((Map<?, ?>) field(channels.getClass(), "loginManagers").get(channels)).values()) {
                if (((javax.security.auth.Subject) call(login, "subject")).getPrivateCredentials(token).isEmpty()) {
                    throw new ConfigException("No OAuth Bearer tokens in Subject's private credentials");
                }
            }
        } finally {
            channels.close();
        }
    }

    // Reflection: most of these classes and methods are not public.

    private static boolean exists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }

    private static Object role(Object mirror, String name, String role) throws Throwable {
        return has(mirror, name, 1) ? call(mirror, name, role) : call(mirror, name);  // before 3.5 a client had no role
    }

    private static boolean has(Object on, String name, int arguments) {
        return method(on.getClass(), name, arguments, null) != null;
    }

    private static Object call(Object on, String name, Object... arguments) throws Throwable {
        return fitting(methods(on.getClass()), name, arguments).invoke(on, arguments);
    }

    private static Object callStatic(String type, String name, Object... arguments) throws Throwable {
        return fitting(methods(Class.forName(type)), name, arguments).invoke(null, arguments);
    }

    private static Method method(Class<?> type, String name, int count, Class<?> last) {
        for (Method each : methods(type)) {
            Class<?>[] types = each.getParameterTypes();
            boolean same = each.getName().equals(name) && types.length == count;
            if (same && (last == null || Arrays.asList(types).contains(last))) {
                return opened(each);
            }
        }
        return null;
    }

    private static List<Method> methods(Class<?> type) {
        List<Method> found = new ArrayList<>();
        for (Class<?> each = type; each != null; each = each.getSuperclass()) {
            found.addAll(Arrays.asList(each.getDeclaredMethods()));
        }
        return found;
    }

    private static Method fitting(List<Method> candidates, String name, Object... arguments) throws NoSuchMethodException {
        for (Method each : candidates) {
            if (each.getName().equals(name) && fits(each, arguments)) {
                return opened(each);
            }
        }
        throw new NoSuchMethodException(name + Arrays.toString(arguments));
    }

    private static boolean fits(Executable candidate, Object... arguments) {
        Class<?>[] types = candidate.getParameterTypes();
        if (types.length != arguments.length) {
            return false;
        }
        for (int place = 0; place < types.length; place++) {
            Class<?> type = types[place].isPrimitive() ? boxed(types[place]) : types[place];
            if (arguments[place] != null && !type.isInstance(arguments[place])) {
                return false;
            }
        }
        return true;
    }

    private static Class<?> boxed(Class<?> primitive) {
        return java.lang.invoke.MethodType.methodType(primitive).wrap().returnType();
    }

    private static Object create(String type, Object... arguments) throws Throwable {
        for (Constructor<?> each : Class.forName(type).getDeclaredConstructors()) {
            if (fits(each, arguments)) {
                try {
                    return opened(each).newInstance(arguments);
                } catch (InvocationTargetException thrown) {
                    throw thrown.getCause();
                }
            }
        }
        throw new NoSuchMethodException(type + Arrays.toString(arguments));
    }

    private static <T extends AccessibleObject> T opened(T member) {
        member.setAccessible(true);
        return member;
    }

    private static Field field(Class<?> type, String name) {
        for (Class<?> each = type; each != null; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    return opened(field);
                }
            }
        }
        return null;
    }

    private static void set(Object on, String name, Object value) throws Throwable {
        field(on.getClass(), name).set(on, value);
    }

    private static Object allocate(String type) throws Throwable {
        Field unsafe = opened(Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe"));
        return call(unsafe.get(null), "allocateInstance", Class.forName(type));
    }
}
