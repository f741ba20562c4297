// A script of OmegaT that translates every segment without a translation by `capsule-mt serve`, or by another server
// with LibreTranslate's API. Run it by Tools, Scripting; or for a whole project from the command line:
//
//   omegat PROJECT --mode=console-translate --script=$PWD/omegat_capsule_mt.groovy
//
// Debian's OmegaT needs the package libgroovy-java for it. Start the server with --max-characters 50000: a request has
// 50 segments.

import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import org.omegat.core.data.PrepareTMXEntry
import static org.omegat.core.events.IProjectEventListener.PROJECT_CHANGE_TYPE.LOAD

def server = "http://127.0.0.1:5000"

// the console runs a script at each event of a project, the window without an event
if (binding.hasVariable("eventType") && eventType != LOAD) return

def properties = project.projectProperties
def source = properties.sourceLanguage.languageCode.toLowerCase()
def target = properties.targetLanguage.languageCode.toLowerCase()
def entries = project.allEntries.findAll { !project.getTranslationInfo(it)?.isTranslated() }
entries.collate(50).each { batch ->
    def connection = new URL("$server/translate").openConnection()
    connection.doOutput = true
    connection.setRequestProperty("Content-Type", "application/json")
    def fields = [q: batch*.srcText, source: source, target: target]
    connection.outputStream.withWriter("UTF-8") { it << JsonOutput.toJson(fields) }
    def texts = new JsonSlurper().parse(connection.inputStream.newReader("UTF-8")).translatedText
    [batch, texts].transpose().each { entry, text ->
        def translation = new PrepareTMXEntry()
        translation.source = entry.srcText
        translation.translation = text
        translation.note = "capsule-mt"
        project.setTranslation(entry, translation, true, null)
    }
}
println("${entries.size()} segments translated")
