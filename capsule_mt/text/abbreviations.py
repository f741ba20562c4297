"""Abbreviations by language, and words that begin sentences.

German, English, Spanish, French, Italian, Portuguese and Russian follow the suppressions of Unicode CLDR 46 (licence
Unicode-3.0), without the entries that are common words, too ("sol.", "set."). The others were written for this file.
"""

# never the last word of a sentence: titles, months, words before a name or a number
ABBREVIATIONS = {
    "bg": "акад ал бл бул вкл г-жа г-н г-ца ген гр д-р доц ет ж.к изкл инж кв лв млн млрд напр обл общ пл полк "
    "проф рис св стр т.г т.е т.нар табл тел ул хил чл",
    "da": "adm afd afs ang apr art aug bd bl.a ca cand cf d.v.s dec div dr dvs eks ekskl f.eks feb fig fr frk "
    "frt fx gade gl hhv hr ifm inkl jan jf jvf kap kgl kl maks mar mdr mht mt nov nr okt prof ref sct "
    "sekr sep sept skt sml st stk tlf ugtl vedr vha vol",
    "de": "abb abk abs abt adj adr akt allg amtl anm apr aufl aug ausg ausschl bd bearb beil bes bez bezgl bibl "
    "bl bspw bzgl bzw ca d.h d.j dipl dipl.-ing dipl.-kfm dr ehem eigtl einh einschl entspr erg erw evang "
    "evtl exkl fa fam feb fig fn fr frl geb gebr gegr geogr ges geschl gest gez ggf ggfs habil hbf hg hl "
    "hr hrn hrsg i.d.r i.h.v ing inh inkl jahrh jan jh jhd jur kap kath kfm kgl lfd lt m.e med mind mt "
    "mär möbl nachf nat nov nr näml obj okt orig pfd phil phys prof prot prov präs reg rel rer röm s.o "
    "s.u schles schr sek sep sept sog spez st str stv südd tel tsd tägl u.a.w.g u.u urspr v.a verf verh "
    "verm verw vet vgl vorm wg z.b z.hd z.t z.z z.zt zit zw zzgl österr",
    "en": "adm al approx apr assn aug bldg c.f ca capt cf cmdr col comdr cpl dec dept dr e.g ed eds eq eqs est "
    "excl ext feb figs fr fri gen gov hon i.e incl jan jul jun lt lt.cdr maj mar messrs mon mr mrs ms mt "
    "mx nov nr oct pp pres prof pvt rep rev revd sen sep sept sgt st ste supt tel thu thur thurs trans "
    "tue tues univ viz vol vols vs",
    "es": "abr admón afma afmo ago apdo arq art arts atte av avda ayto bco ca cap cc cf cfr col coord cra depto "
    "deptos dic dir dpto dptos dr dra dras dres dña ed ee ej ene excma excmo excmos exma exmo ext fdo feb "
    "fig figs gob gral hnos ilma ilmo ing jue jul jun lcda lcdo ldo lic licda licdo lun mié mons mr mrs "
    "mt mtro máx mín nov ntra ntro núm núms oct p.ej pbro prof profa prov pág págs párr párrf rdo ref rev "
    "rvdo sdad sept sra sras sres srs srta srtas sta sto sáb tel trad ud uds v.gr vda vid vie vol vols",
    "fi": "dr esim klo ks mm n nk nro ns prof puh s siv toht tri vrt ym yms",
    "fr": "acad adr ann ap append apr av avr bd bibl boul bull c.-à-d cap cf chap coll collab dest dict dir doc "
    "dr déc dép encycl env fasc fig févr gouv hôp ill illustr inf janv jr juil lieut m mgr mlle mlles mm "
    "mme mmes nov n° obs oct p p.ex pp pr prof préf quart réf sept sq st ste sts suiv sup suppl symb "
    "t.a.v trad tél v vol vols vs zool éd édit équiv éval",
    "it": "amm apr arch arch.ti art artt avv avv.ti cap capp cav cfr ch.mo cit cod comm cons cpv d.ssa dic dir "
    "dott dott.ssa dott.sse dr dr.ssa ecc.mo ed egr es feb fig figg gen genn gent geom gio giu giur "
    "idraul inf ing int lett lic lug lun meteor mitt mod mons n.b nov on.le ott p.es pag pagg presid prof "
    "prof.ssa proff prov psicol rag rev rif s.a.r sab sez sig sig.na sig.ra sigg sigg.re spett tab tav "
    "tel trad v.cte ven vol",
    "kk": "акад ауд б.з б.з.б б.э.б доц ж ж.б жж көш млн млрд мыс мың обл проф т.б т.с.с тел ғ қ",
    "nl": "aanw adj afb afd afk alg apr art aug b.v bijv bijz blz ca d.w.z dec dep dhr dr drs enk evt excl feb "
    "fig fr geb gebr gem gld hfst hr i.p.v i.v.m incl ing ir jan jhr jkvr jl lat lic lt m.b.t m.i.v maj "
    "max mej mevr mgr min mr mrt mw ned nl nov nr nrs o.a o.l.v o.v.v okt ong opm p.a pag par prof reg "
    "resp rk sept st t.a.v t.g.v t.o.v tel vb verg vgl vnl vnw vol voorz vz zgn",
    "pl": "ang art bałt daw dosł dr fr gen godz hab hiszp inż itp jęz ks lek m.in mgr mjr mld mln niem np nr os "
    "pkt pl plk pol prof przyp pt płk r ref rys s str tab tel tj tys tzn tzw ul ur woj wyd zob zw zł łac "
    "św",
    "pt": "abr adm ago apart apt art arts av avda cap caps cel cf coord cód dep dez dir doc dr dra dras drs ed "
    "esp exa exma exmo fasc fev fig figs fl fls gal gen ilma ilmo jan jul jun lda máx mín nov núm obs org "
    "p.ex pe proc prof profa próx pág págs pç r.s.v.p ref rel res rev sec sr sra srs srta sta sto séc tel "
    "trad univ v.exa vol vols vs álg índ",
    "ru": "авг акад англ апр б букв бул быв г-жа г-н гг гл гос гр д-р дек деп доб доц ж ж.-д зам зап ил им ин-т "
    "инж кан кв кв.м ким коп корп куб лат лит мин н.э наб напр нач нем нояб обл окт отд пгт пер пл пол "
    "пос пр-т просп проф р-н разд рис св сев сект сент см соц ср ст стр т.е т.к т.н т.о табл тел тов ул "
    "ун-т утв февр фр франц чел чл шт экз янв",
    "sk": "a.s akad angl apod apr arch atď aug bc cca dec dipl doc dr febr gen hod ind ing inž jan jud júl jún "
    "kap kpt kt lat mar max maď mgr mil min mjr mudr napr nov npor nám obr odd ods okt os p phdr pl plk "
    "pol por pozn pr prof príp resp rndr roč s s.r.o sept sl slov soc st str stred sv tab tel thdr tis tj "
    "tzn tzv ul vyd zb zv zák č čl",
}

# may be the last word of a sentence: it is, if a word of `SENTENCE_STARTERS` follows
FINAL_ABBREVIATIONS = {
    "da": "a.m aps co corp etc inc jr kr ltd mia mio mm mv osv p.m sr",
    "de": "co e.v etc inc jr m.w max min mio mrd n.chr o.g o.ä sen std u.a u.ä usf usw v.chr",
    "en": "a.d a.m ave b.a b.c blvd bros co corp esq etc ft i inc jr lb lbs llc ltd m.a oz p.m ph.d plc rd sq sr",
    "es": "a.c co cía d.c ee.uu etc inc jr ltd ltda s.a sr uu",
    "fr": "cie co etc inc j.-c ltd s.a",
    "it": "a.c co d.c ecc etc inc ltd s.p.a s.r.l",
    "nl": "co enz etc inc jr ltd sr",
    "pt": "a.c cia d.c etc inc jr ltd ltda s.a",
    "ru": "долл др млн млрд пр руб т.д т.п т.ч тыс у.е ч",
}

# abbreviations of one language that are words of another one: they do not count where the language is not stated
_WORDS_ELSEWHERE = (
    "al ann ant cap chap co cod com coll come da de des dest dim dir div e ed en end er es ese est fra gen gin "
    "gob hab hl hon in ind inf ing int ir is klo kl lat lit m mag maj mal man mat me mer mind min mit mod mon "
    "mot n name nat no o ob obj obs on opp or ord org os par phil pl pop por pres pro prop prof red ref rel "
    "rep res ros sab sen set sud sup sus ten thin tor tue var ver vet vie vid vis voll wed wig win hag ah ans "
    "ft ext fast fest sat sun max rif tab tav geb gem art"
)
WORDS_ELSEWHERE = frozenset(_WORDS_ELSEWHERE.split())

SENTENCE_STARTERS = {
    "da": "da de den der det dette disse du en et han hun hvad hvem hvor hvordan hvorfor hvornår i jeg men og så vi",
    "de": "aber als am auch auf bei da danach dann das dem den der deshalb die dies diese dieser dieses doch du "
    "ein eine er es heute hier ich ihr im in jetzt man mit nach nun seit sie so trotzdem und vielleicht "
    "von wann warum was wenn wer wie wir wo zu zum",
    "en": "a after all also although an and another are as at because before being but by did do does every for "
    "from had has have he her here his how however i if in is it its just let many maybe more most my no "
    "not now of on once one only or other our perhaps please she since so some such than that the their "
    "then there these they this those though to under until was we were what when where which while who "
    "why will with would yes yet you your",
    "es": "a ahora al aquí así aunque como con cuando cómo de del desde donde dónde el ella ellas ellos en "
    "entonces es esa ese esta este esto estos está había hay hoy la las les lo los luego mi muchos más no "
    "nos para pero por porque que quién qué se según si sin sobre su sus también tras tu un una usted y "
    "ya yo él",
    "fr": "au aussi avec c'est ce cela celle ces cette comme comment dans de depuis des donc elle elles en est "
    "et il ils je l'on la le les leur lors mais notre nous on où par pour pourquoi puis quand que quel "
    "quelle qui sa sans se ses si son sur tous tout très un une vous",
    "it": "a al alla anche che chi ci come con cosa così da dal della dopo dove e ed egli era essa gli ha hanno "
    "ho i il in io la le lei loro lui ma mi nel nella noi non oggi ogni per perché poi quando quanto "
    "quella quello questa questi questo qui se si sono su tu tutti un una uno voi è",
    "nl": "aan alle als daar dan dat de deze die dit dus een en er het hier hij hoe ik in is je jij maar met na "
    "naar nu of om onze op toen u van voor waar waarom want wat we wie wij ze zij zo",
    "pt": "a agora ao aos apesar aqui as assim com como da das de depois do dos e ela elas ele eles em enquanto "
    "entre era essa esse esta este eu foi hoje isso isto já mas muitos na nas no nos não nós o onde os ou "
    "para pela pelo por porque quando que quem se sem seu sua são também tem um uma você",
    "ru": "без был была были быть вот все всё вы где да даже для до его ее если есть еще за здесь из или их как "
    "когда который кто мой мы на над наш не нет но об однако он она они оно от очень по под после потом "
    "потому почему при сейчас со так также там то тогда того только тот тут ты уже что чтобы эта эти это "
    "этот",
}
