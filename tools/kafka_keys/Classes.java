import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Prints `interface class` for each class name on stdin that Kafka can create as one of the interfaces in the arguments. */
public class Classes {
    public static void main(String[] arguments) throws Exception {
        List<Class<?>> interfaces = new ArrayList<>();
        for (String name : arguments) {
            try {
                interfaces.add(Class.forName(name));
            } catch (ClassNotFoundException newer) {
                continue;  // an older line does not have it
            }
        }
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in));
        for (String name = names.readLine(); name != null; name = names.readLine()) {
            try {
                Class<?> type = Class.forName(name, false, Classes.class.getClassLoader());
                for (Class<?> each : interfaces) {
                    if (each.isAssignableFrom(type) && isCreatable(type)) {
                        System.out.println(each.getName() + " " + name);
                    }
                }
            } catch (LinkageError | ClassNotFoundException lacking) {
                continue;  // it needs a library that is not there
            }
        }
    }

    private static boolean isCreatable(Class<?> type) {
        int modifiers = type.getModifiers();
        if (Modifier.isAbstract(modifiers) || !Modifier.isPublic(modifiers)) {
            return false;
        }
        for (Constructor<?> each : type.getConstructors()) {
            Class<?>[] taken = each.getParameterTypes();
            if (taken.length == 0 || (taken.length == 1 && taken[0] == Map.class)) {
                return true;
            }
        }
        return false;
    }
}
